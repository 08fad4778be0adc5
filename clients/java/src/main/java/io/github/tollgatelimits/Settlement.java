package io.github.tollgatelimits;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The result of a commit, a release or an extension.
 *
 * @param reservation ID of the reservation; empty if it had none and no call was made
 * @param reserved hits that were reserved
 * @param committed the true amount; 0 for a release
 * @param repeated whether it was settled before; the amounts are then those of the first time
 * @param remaining hits that the tightest limit has left; empty if no limit applies
 * @param reset time until the tightest limit is unused again; empty if no limit applies
 * @param limits limits that apply
 * @param expires time until the reservation ends by itself; of an extension only
 */
public record Settlement(
    Optional<String> reservation,
    long reserved,
    long committed,
    boolean repeated,
    OptionalLong remaining,
    Optional<Duration> reset,
    List<Limit> limits,
    Optional<Duration> expires) {
  /** The result for a reservation that has nothing to settle. */
  static final Settlement NOTHING =
      new Settlement(
          Optional.empty(),
          0,
          0,
          false,
          OptionalLong.empty(),
          Optional.empty(),
          List.of(),
          Optional.empty());

  /** Copies the limits. */
  public Settlement {
    limits = List.copyOf(limits);
  }
}
