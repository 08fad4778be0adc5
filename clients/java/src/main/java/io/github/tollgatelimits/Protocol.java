package io.github.tollgatelimits;

/** The gRPC service that a client calls. */
public enum Protocol {
  /** {@code tollgate.v1.RateLimits}, with all calls. */
  TOLLGATE,
  /** {@code envoy.service.ratelimit.v3.RateLimitService}, with check and peek only. */
  ENVOY
}
