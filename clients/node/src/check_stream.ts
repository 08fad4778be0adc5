import type { ClientDuplexStream } from "@grpc/grpc-js";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";

import { abortReason, type CallLimits, type Connections } from "./connections.js";
import { callError } from "./errors.js";
import {
  type Answer,
  type Call,
  type CheckRequest,
  type CheckResponse,
  RateLimitsService,
} from "./gen/tollgate/v1/rate_limits.js";

/** The service answers so many calls of a stream at once. */
const IN_PROGRESS_MAX = 64;
const QUEUE_CHECKS_MAX = 1_024;

type Stream = ClientDuplexStream<Call, Answer>;

interface PendingCheck {
  readonly request: CheckRequest;
  /** Ends the check, at most once. */
  readonly settle: (answer: CheckResponse | Error) => void;
}

/**
 * Sends concurrent checks over one stream, which is opened again after a failure.
 *
 * A failed stream fails the checks that it carries: they may have been charged, and are not sent again.
 */
export class CheckStream {
  readonly #connections: Connections;
  /** Checks that wait for a place in the stream, in their order. */
  readonly #queue = new Set<PendingCheck>();
  /** Checks that the stream carries, by their tag. */
  readonly #carried = new Map<bigint, PendingCheck>();
  #stream: Stream | undefined;
  #opening = false;
  #closed = false;
  #nextTag = 0n;

  constructor(connections: Connections) {
    this.#connections = connections;
  }

  /** Makes one check. Rejects with a `CallError`, or with the signal's reason if it is aborted. */
  check(request: CheckRequest, limits: CallLimits): Promise<CheckResponse> {
    return new Promise((resolve, reject) => {
      if (this.#queue.size >= QUEUE_CHECKS_MAX) {
        reject(callError(status.UNAVAILABLE, "queue full"));
        return;
      }
      const { signal } = limits;
      const abort = (): void => {
        if (signal !== undefined) this.#abandon(check, abortReason(signal));
      };
      const timer = setTimeout(() => {
        this.#abandon(check, callError(status.DEADLINE_EXCEEDED, "the service did not answer before the deadline"));
      }, limits.deadline - performance.now());
      const check: PendingCheck = {
        request,
        settle: (answer) => {
          clearTimeout(timer);
          signal?.removeEventListener("abort", abort);
          if (answer instanceof Error) reject(answer);
          else resolve(answer);
        },
      };
      signal?.addEventListener("abort", abort);
      this.#queue.add(check);
      this.#send(limits);
    });
  }

  /** Ends the stream when the checks in flight have ended, by their deadline at the latest. */
  close(): void {
    this.#closed = true;
    this.#endIfUnused();
  }

  /** Sends queued checks while the stream has places. */
  #send(limits: CallLimits): void {
    const stream = this.#stream;
    if (stream === undefined) {
      if (!this.#opening) void this.#open(limits);
      return;
    }
    for (const check of this.#queue) {
      if (this.#carried.size >= IN_PROGRESS_MAX) return;
      const tag = this.#nextTag;
      this.#nextTag += 1n;
      this.#queue.delete(check);
      this.#carried.set(tag, check);
      stream.write({ tag, call: { $case: "check", check: check.request } });
    }
  }

  async #open(limits: CallLimits): Promise<void> {
    this.#opening = true;
    const client = await this.#connections.client(limits).catch((error: unknown) => error as Error);
    this.#opening = false;
    if (client instanceof Error) {
      const failed = [...this.#queue];
      this.#queue.clear();
      for (const check of failed) check.settle(client);
      return;
    }
    const { path, requestSerialize, responseDeserialize } = RateLimitsService.stream;
    const stream = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, new Metadata());
    this.#stream = stream;
    stream.on("data", (answer: Answer) => {
      this.#answered(answer, limits);
    });
    stream.on("error", (error: ServiceError) => {
      this.#failed(stream, callError(error.code, error.details, error), limits);
    });
    stream.on("end", () => {
      this.#failed(stream, callError(status.UNAVAILABLE, "the service ended the stream"), limits);
    });
    this.#send(limits);
    this.#endIfUnused();
  }

  #answered({ tag, answer }: Answer, limits: CallLimits): void {
    const check = this.#carried.get(tag);
    // The check may have ended by its deadline.
    if (check === undefined) return;
    this.#carried.delete(tag);
    if (answer?.$case === "check") check.settle(answer.check);
    else if (answer?.$case === "failure") check.settle(callError(answer.failure.code, answer.failure.message));
    else check.settle(callError(status.INTERNAL, "the service answered another call"));
    this.#send(limits);
    this.#endIfUnused();
  }

  #failed(stream: Stream, error: Error, limits: CallLimits): void {
    if (stream !== this.#stream) return;
    this.#stream = undefined;
    const failed = [...this.#carried.values()];
    this.#carried.clear();
    for (const check of failed) check.settle(error);
    if (this.#queue.size > 0) this.#send(limits);
  }

  #abandon(check: PendingCheck, error: Error): void {
    this.#queue.delete(check);
    for (const [tag, carried] of this.#carried) {
      if (carried === check) this.#carried.delete(tag);
    }
    check.settle(error);
    this.#endIfUnused();
  }

  #endIfUnused(): void {
    if (!this.#closed || this.#carried.size > 0 || this.#queue.size > 0) return;
    const stream = this.#stream;
    this.#stream = undefined;
    stream?.cancel();
  }
}
