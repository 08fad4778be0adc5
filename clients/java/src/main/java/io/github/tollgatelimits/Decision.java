package io.github.tollgatelimits;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The result of a check, a peek or a reservation.
 *
 * @param allowed whether the request may pass
 * @param source what decided
 * @param remaining hits that the tightest limit has left; empty if no limit applies
 * @param reset time until the tightest limit is unused again; empty if no limit applies
 * @param retryAfter time until the same hits would pass; empty if allowed, never, or not known
 * @param limits limits that apply
 * @param noLimit why no limit applied; empty if one did, without an answer, and with {@link
 *     Protocol#ENVOY}, which does not say
 * @param error why the server did not answer; present with {@link Source#LOCAL}, {@link
 *     Source#ALLOW} and {@link Source#DENY} only
 * @param elapsed duration of the call by the real clock
 */
public record Decision(
    boolean allowed,
    Source source,
    OptionalLong remaining,
    Optional<Duration> reset,
    Optional<Duration> retryAfter,
    List<Limit> limits,
    Optional<NoLimit> noLimit,
    Optional<TollgateException> error,
    Duration elapsed) {
  /** Checks that no part is null, and copies the limits. */
  public Decision {
    Objects.requireNonNull(source, "source");
    Objects.requireNonNull(remaining, "remaining");
    Objects.requireNonNull(reset, "reset");
    Objects.requireNonNull(retryAfter, "retryAfter");
    limits = List.copyOf(limits);
    Objects.requireNonNull(noLimit, "noLimit");
    Objects.requireNonNull(error, "error");
    Objects.requireNonNull(elapsed, "elapsed");
  }

  static Decision withoutAnswer(
      boolean allowed, Source source, Optional<Duration> retryAfter, TollgateException error) {
    return new Decision(
        allowed,
        source,
        OptionalLong.empty(),
        Optional.empty(),
        retryAfter,
        List.of(),
        Optional.empty(),
        Optional.of(error),
        Duration.ZERO);
  }

  /**
   * Returns the tightest limit. If allowed, it has the least remaining. If refused, it is the first
   * refused limit without a {@code retryAfter}, else the one with the longest. With {@link
   * Source#LEASE} it has {@code remaining} and {@code reset} of this decision: the limits are those
   * of the answer that granted the lease.
   *
   * @return empty if no limit applies
   */
  public Optional<Limit> tightestLimit() {
    Optional<Limit> tightest = Limit.tightest(limits, allowed);
    return source == Source.LEASE && remaining.isPresent()
        ? tightest.map(limit -> limit.with(remaining.getAsLong(), reset))
        : tightest;
  }

  /** Returns this decision as the denial cache repeats it, with its times less {@code age}. */
  Decision repeatedAfter(Duration age) {
    return new Decision(
        allowed,
        Source.CACHE,
        remaining,
        reset.map(time -> less(time, age)),
        retryAfter.map(time -> less(time, age)),
        limits.stream().map(limit -> limit.after(age)).toList(),
        noLimit,
        error,
        Duration.ZERO);
  }

  /**
   * Returns the decision of a check that takes hits of a lease.
   *
   * @param age time since the server granted it, with this decision
   * @param left hits that the key has left
   */
  Decision byLease(Duration age, long left) {
    return new Decision(
        true,
        Source.LEASE,
        remaining.isPresent()
            ? OptionalLong.of(remaining.getAsLong() + left)
            : OptionalLong.empty(),
        reset.map(time -> less(time, age)),
        Optional.empty(),
        limits,
        Optional.empty(),
        Optional.empty(),
        Duration.ZERO);
  }

  Decision withElapsed(Duration elapsed) {
    return new Decision(
        allowed, source, remaining, reset, retryAfter, limits, noLimit, error, elapsed);
  }

  static Duration less(Duration time, Duration elapsed) {
    Duration rest = time.minus(elapsed);
    return rest.isNegative() ? Duration.ZERO : rest;
  }
}
