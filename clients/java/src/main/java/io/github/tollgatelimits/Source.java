package io.github.tollgatelimits;

/** What made a {@link Decision}. */
public enum Source {
  /** The server answered. */
  SERVER,
  /** A lease: hits that the server granted in advance. */
  LEASE,
  /** The denial cache repeated a refusal of the server. */
  CACHE,
  /** The server did not answer, and the local token bucket decided. */
  LOCAL,
  /** The server did not answer, and {@link OnError#ALLOW} decided. */
  ALLOW,
  /** The server did not answer, and {@link OnError#DENY} decided. */
  DENY
}
