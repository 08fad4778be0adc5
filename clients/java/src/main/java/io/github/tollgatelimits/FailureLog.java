package io.github.tollgatelimits;

import java.util.List;
import java.util.Locale;
import java.util.function.LongSupplier;

/** Logs that {@link OnError} decides: the first decision, and then at most one a minute. */
final class FailureLog {
  private static final System.Logger LOGGER = System.getLogger("io.github.tollgatelimits");
  private static final long INTERVAL_NANOS = 60_000_000_000L;

  private final String addresses;
  private final String onError;
  private final LongSupplier clock;

  /** Decisions since the last warning. */
  private long decisions;

  private boolean warned;
  private long warnedAt;

  FailureLog(List<String> addresses, OnError onError, LongSupplier clock) {
    this.addresses = String.join(",", addresses);
    this.onError = onError.name().toLowerCase(Locale.ROOT);
    this.clock = clock;
  }

  /** Records a decision, and why it was needed. */
  void decided(TollgateException error) {
    long count;
    synchronized (this) {
      decisions++;
      long now = clock.getAsLong();
      // A call that the breaker stopped has no cause of its own.
      if (error.breakerOpen() || warned && now - warnedAt < INTERVAL_NANOS) {
        return;
      }
      count = decisions;
      decisions = 0;
      warned = true;
      warnedAt = now;
    }
    String message =
        "no answer from the service: addresses="
            + addresses
            + " on_error="
            + onError
            + " decisions="
            + count
            + " error="
            + error.getMessage();
    try {
      LOGGER.log(System.Logger.Level.WARNING, message);
    } catch (RuntimeException failure) {
      // A logger that fails does not fail the check.
    }
  }
}
