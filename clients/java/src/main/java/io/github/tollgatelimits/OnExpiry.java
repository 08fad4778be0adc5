package io.github.tollgatelimits;

/** What happens to the hits of a reservation that expires. */
public enum OnExpiry {
  /** The hits stay charged. */
  CHARGE,
  /** The hits go back to the limits. */
  RELEASE
}
