package io.github.tollgatelimits;

import java.util.List;
import java.util.Locale;
import java.util.concurrent.ForkJoinPool;
import java.util.function.LongSupplier;

/** Logs that {@link OnError} decides: the first decision, and then at most one a minute. */
final class FailureLog {
  private static final System.Logger LOGGER = System.getLogger("io.github.tollgatelimits");
  private static final long INTERVAL_NANOS = 60_000_000_000L;
  private static final int MAX_CAUSE_LENGTH = 200;

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

  /**
   * Records a decision, and the error of the call that made it necessary. Logs on the common pool:
   * a logger may wait, and the thread of the connections must not.
   */
  void decided(TollgateException cause) {
    long count;
    synchronized (this) {
      decisions++;
      long now = clock.getAsLong();
      if (warned && now - warnedAt < INTERVAL_NANOS) {
        return;
      }
      count = decisions;
      decisions = 0;
      warned = true;
      warnedAt = now;
    }
    String message =
        "no answer from tollgate: addresses="
            + addresses
            + " on_error="
            + onError
            + " decisions="
            + count
            + " error="
            + text(cause);
    // A logger that fails ends its task only.
    ForkJoinPool.commonPool().execute(() -> LOGGER.log(System.Logger.Level.WARNING, message));
  }

  /**
   * Returns the status and the message of an error on one line. The message comes from the network:
   * it is cut, and characters that end a line or control a terminal are escaped.
   */
  private static String text(TollgateException cause) {
    StringBuilder written = new StringBuilder();
    String text = cause.statusText();
    text.codePoints()
        .limit(MAX_CAUSE_LENGTH)
        .forEach(
            character -> {
              if (Character.isISOControl(character) || character == 0x2028 || character == 0x2029) {
                written.append(String.format("\\u%04x", character));
              } else {
                written.appendCodePoint(character);
              }
            });
    return text.codePointCount(0, text.length()) > MAX_CAUSE_LENGTH
        ? written.append('…').toString()
        : written.toString();
  }
}
