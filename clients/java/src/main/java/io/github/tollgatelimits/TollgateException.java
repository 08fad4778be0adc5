package io.github.tollgatelimits;

import io.grpc.Status;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * A call that the server did not answer, or answered with an error.
 *
 * <p>Checks and reservations do not throw it: their {@link Decision} carries it.
 */
public final class TollgateException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final Status.Code code;
  private final String statusText;
  private final boolean breakerOpen;
  private final boolean queueFull;

  private TollgateException(Status status, boolean breakerOpen, boolean queueFull, String message) {
    super(message, status.getCause());
    this.code = status.getCode();
    this.statusText = text(status);
    this.breakerOpen = breakerOpen;
    this.queueFull = queueFull;
  }

  static TollgateException of(Status status) {
    return of(status, false);
  }

  private static TollgateException of(Status status, boolean queueFull) {
    return new TollgateException(status, false, queueFull, "tollgate call failed: " + text(status));
  }

  private static String text(Status status) {
    // The description of a connection that failed is "io exception"; its cause says more.
    return Stream.of(
            status.getCode().name(),
            status.getDescription(),
            status.getCause() == null ? null : status.getCause().getMessage())
        .filter(part -> part != null && !part.isEmpty())
        .collect(Collectors.joining(": "));
  }

  static TollgateException breakerIsOpen() {
    return new TollgateException(
        Status.UNAVAILABLE,
        true,
        false,
        "no call to tollgate: circuit breaker is open after failures in a row");
  }

  static TollgateException queueIsFull() {
    return of(Status.UNAVAILABLE.withDescription("queue full"), true);
  }

  /** Returns the gRPC status code. It is {@code UNAVAILABLE} if the breaker is open. */
  public Status.Code code() {
    return code;
  }

  /** Returns the name of the status, and its description if it has one. */
  String statusText() {
    return statusText;
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
