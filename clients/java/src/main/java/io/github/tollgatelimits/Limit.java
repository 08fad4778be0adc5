package io.github.tollgatelimits;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/**
 * The state of one limit that applies to a call.
 *
 * @param descriptor position of its descriptor in the call, from 0
 * @param name name of the rule; empty if it has none
 * @param rule path of the rule, as in tollgate's metrics; empty with {@link Protocol#ENVOY}
 * @param requestsPerUnit hits that the limit allows in a window
 * @param window the window in words, such as {@code 1 minute}
 * @param allowed whether this limit allowed the call
 * @param remaining hits that are left
 * @param reset time until the limit is unused again
 * @param retryAfter time until the same hits would pass; empty if allowed, never, or not known
 */
public record Limit(
    int descriptor,
    String name,
    String rule,
    long requestsPerUnit,
    String window,
    boolean allowed,
    long remaining,
    Optional<Duration> reset,
    Optional<Duration> retryAfter) {
  private static final Duration NEVER = Duration.ofSeconds(Long.MAX_VALUE);

  /** Checks that no part is null. */
  public Limit {
    Objects.requireNonNull(name, "name");
    Objects.requireNonNull(rule, "rule");
    Objects.requireNonNull(window, "window");
    Objects.requireNonNull(reset, "reset");
    Objects.requireNonNull(retryAfter, "retryAfter");
  }

  /** Returns the tightest of the limits of a decision. Of equal ones, the first. */
  static Optional<Limit> tightest(List<Limit> limits, boolean allowed) {
    Limit tightest = null;
    for (Limit limit : limits) {
      if (allowed
          ? tightest == null || limit.remaining < tightest.remaining
          : !limit.allowed
              && (tightest == null || limit.waitTime().compareTo(tightest.waitTime()) > 0)) {
        tightest = limit;
      }
    }
    return Optional.ofNullable(tightest);
  }

  private Duration waitTime() {
    return retryAfter.orElse(NEVER);
  }

  Limit with(long remaining, Optional<Duration> reset) {
    return new Limit(
        descriptor, name, rule, requestsPerUnit, window, allowed, remaining, reset, retryAfter);
  }

  Limit after(Duration elapsed) {
    return new Limit(
        descriptor,
        name,
        rule,
        requestsPerUnit,
        window,
        allowed,
        remaining,
        reset.map(time -> Decision.less(time, elapsed)),
        retryAfter.map(time -> Decision.less(time, elapsed)));
  }
}
