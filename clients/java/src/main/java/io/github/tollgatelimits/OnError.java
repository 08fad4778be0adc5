package io.github.tollgatelimits;

/** What decides a check or a reservation that has no answer of the server. */
public enum OnError {
  /** The request is allowed. */
  ALLOW,
  /** The request is refused. */
  DENY,
  /** A token bucket in this process decides. */
  LOCAL
}
