import { status } from "@grpc/grpc-js";

/** The name of a gRPC status, such as `UNAVAILABLE`. */
export type StatusName = Exclude<keyof typeof status, "OK">;

/**
 * A call without an answer.
 *
 * `code` is the gRPC status with which the call ended, or `BREAKER_OPEN` if the breaker stopped the call.
 */
export class CallError extends Error {
  override readonly name = "CallError";
  readonly code: StatusName | "BREAKER_OPEN";

  /** @internal */
  constructor(code: StatusName | "BREAKER_OPEN", message: string, options?: ErrorOptions) {
    super(message === "" ? code : `${code}: ${message}`, options);
    this.code = code;
  }
}

/** A call on a client after `close`. */
export class ClosedError extends Error {
  override readonly name = "ClosedError";

  /** @internal */
  constructor() {
    super("The client is closed. Create a new one.");
  }
}

/** The error of a breaker that is open. */
export function breakerOpen(): CallError {
  return new CallError("BREAKER_OPEN", "the service failed repeatedly; no call is made until the breaker closes");
}

/** The error of a gRPC status code. */
export function callError(code: number, message: string, cause?: unknown): CallError {
  const name = (status[code] as StatusName | undefined) ?? "UNKNOWN";
  return new CallError(name, message, { cause });
}

/** Whether the error is a failure of the service, which the breaker counts. */
export function isServiceFailure(error: CallError): boolean {
  switch (error.code) {
    case "UNAVAILABLE":
    case "DEADLINE_EXCEEDED":
    case "INTERNAL":
    case "UNKNOWN":
    case "CANCELLED":
      return true;
    default:
      return false;
  }
}
