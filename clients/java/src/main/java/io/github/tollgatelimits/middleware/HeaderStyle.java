package io.github.tollgatelimits.middleware;

/** Names of the rate limit headers of a response. */
public enum HeaderStyle {
  /** {@code RateLimit-Limit}, {@code RateLimit-Remaining} and {@code RateLimit-Reset}. */
  RATELIMIT("RateLimit-"),
  /** {@code X-RateLimit-Limit}, {@code X-RateLimit-Remaining} and {@code X-RateLimit-Reset}. */
  X_RATELIMIT("X-RateLimit-");

  private final String prefix;

  HeaderStyle(String prefix) {
    this.prefix = prefix;
  }

  String prefix() {
    return prefix;
  }
}
