package io.github.tollgatelimits;

/** What becomes of a call whose domain no rules have. */
public enum UnknownDomain {
  /** The request is allowed, as the server answers. */
  ALLOW,
  /** The call fails with an {@link IllegalArgumentException}. */
  ERROR
}
