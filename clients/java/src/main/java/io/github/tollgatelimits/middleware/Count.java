package io.github.tollgatelimits.middleware;

/** Which requests take hits. */
public enum Count {
  /** All, before they are answered. */
  ALL,
  /** Those that failed, once they have a status. */
  FAILED,
  /** Those that did not fail, once they have a status. */
  SUCCESSFUL
}
