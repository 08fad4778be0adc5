package io.github.tollgatelimits;

import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;

/** Why no limit applied to a call. */
public enum NoLimit {
  /** No rules have the domain. See {@link UnknownDomain}. */
  UNKNOWN_DOMAIN,
  /** No rule with a limit matches the descriptors. */
  NO_RULE,
  /** A rule that matches is unlimited. */
  UNLIMITED;

  /** Returns the reason of an answer; empty without one, or for one of a newer server. */
  static Optional<NoLimit> of(String reason) {
    return Arrays.stream(values())
        .filter(known -> known.name().toLowerCase(Locale.ROOT).equals(reason))
        .findFirst();
  }
}
