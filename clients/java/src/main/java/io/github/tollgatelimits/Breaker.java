package io.github.tollgatelimits;

import java.util.Optional;
import java.util.function.LongSupplier;

/** Circuit breaker: stops calls for a time after failures in a row. */
final class Breaker {
  private enum State {
    CLOSED,
    OPEN,
    HALF_OPEN
  }

  private final int failuresMax;
  private final long openNanos;
  private final LongSupplier clock;

  private State state = State.CLOSED;
  private int failures;
  private long openedAt;

  /** The failure that opened the breaker last. */
  private TollgateException cause;

  /** Counts changes of the state. The outcome of a call that began before a change is ignored. */
  private long generation;

  Breaker(int failuresMax, long openNanos, LongSupplier clock) {
    this.failuresMax = failuresMax;
    this.openNanos = openNanos;
    this.clock = clock;
  }

  /** The right to make one call. Its holder reports the outcome once. */
  final class Permit {
    private final long issuedIn;
    private final boolean probe;

    private Permit(long issuedIn, boolean probe) {
      this.issuedIn = issuedIn;
      this.probe = probe;
    }

    /** Returns whether this is the one call of a half-open breaker. */
    boolean isProbe() {
      return probe;
    }

    /** Reports that the service answered. */
    void answered() {
      synchronized (Breaker.this) {
        if (issuedIn == generation) {
          failures = 0;
          if (probe) {
            change(State.CLOSED);
          }
        }
      }
    }

    /** Reports that the service failed. */
    void failed(TollgateException failure) {
      synchronized (Breaker.this) {
        if (issuedIn != generation) {
          return;
        }
        failures++;
        if (probe || failures >= failuresMax) {
          failures = 0;
          openedAt = clock.getAsLong();
          cause = failure;
          change(State.OPEN);
        }
      }
    }

    /** Reports that the caller cancelled. The next call may probe instead. */
    void cancelled() {
      synchronized (Breaker.this) {
        if (issuedIn == generation && probe) {
          change(State.OPEN);
        }
      }
    }
  }

  /** Returns a permit, or nothing if no call may be made now. */
  synchronized Optional<Permit> acquire() {
    switch (state) {
      case CLOSED:
        return Optional.of(new Permit(generation, false));
      case OPEN:
        if (clock.getAsLong() - openedAt < openNanos) {
          return Optional.empty();
        }
        change(State.HALF_OPEN);
        return Optional.of(new Permit(generation, true));
      default:
        return Optional.empty();
    }
  }

  /** Returns whether calls in a row have not failed. */
  synchronized boolean isClosed() {
    return state == State.CLOSED;
  }

  /** Returns the failure that opened the breaker last, or null. */
  synchronized TollgateException cause() {
    return cause;
  }

  private void change(State next) {
    state = next;
    generation++;
  }
}
