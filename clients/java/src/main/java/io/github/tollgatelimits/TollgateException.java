package io.github.tollgatelimits;

import io.grpc.Status;

/**
 * A call that the server did not answer, or answered with an error.
 *
 * <p>Checks and reservations do not throw it: their {@link Decision} carries it.
 */
public final class TollgateException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final Status.Code code;
  private final boolean breakerOpen;
  private final boolean queueFull;

  private TollgateException(
      Status.Code code, boolean breakerOpen, boolean queueFull, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
    this.breakerOpen = breakerOpen;
    this.queueFull = queueFull;
  }

  static TollgateException of(Status status) {
    return of(status, false);
  }

  private static TollgateException of(Status status, boolean queueFull) {
    String description = status.getDescription();
    return new TollgateException(
        status.getCode(),
        false,
        queueFull,
        "tollgate call failed: "
            + status.getCode()
            + (description == null ? "" : ": " + description),
        status.getCause());
  }

  static TollgateException breakerIsOpen() {
    return new TollgateException(
        Status.Code.UNAVAILABLE,
        true,
        false,
        "no call to tollgate: circuit breaker is open after failures in a row",
        null);
  }

  static TollgateException queueIsFull() {
    return of(Status.UNAVAILABLE.withDescription("queue full"), true);
  }

  /** Returns the gRPC status code. It is {@code UNAVAILABLE} if the breaker is open. */
  public Status.Code code() {
    return code;
  }

  /** Returns whether the circuit breaker was open, so that no call was made. */
  public boolean breakerOpen() {
    return breakerOpen;
  }

  /** Returns whether too many checks waited for the stream, so that no call was made. */
  boolean isQueueFull() {
    return queueFull;
  }

  /** Returns whether the status says that the service failed, rather than that it answered. */
  boolean isServiceFailure() {
    return switch (code) {
      case UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, UNKNOWN, CANCELLED -> true;
      default -> false;
    };
  }
}
