import type { CallLimits } from "./connections.js";
import type { Decision } from "./decision.js";
import { type Descriptor, validateHits } from "./descriptor.js";
import { requireKnown } from "./known_options.js";
import type { ReservationProtocol, ReserveAnswer, Settlement } from "./protocol.js";

const ID_BYTES_MAX = 256;
const EXPIRES_MS_MAX = 86_400_000;
const NOTHING_SETTLED: Settlement = { reserved: 0, committed: 0, repeated: false, limits: [] };

interface ReservedCall {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
}

type Settle = (protocol: ReservationProtocol, call: ReservedCall, limits: CallLimits) => Promise<Settlement>;

/** Makes a settling call within the client's deadline. */
type Settler = (name: string, settle: Settle, signal: AbortSignal | undefined) => Promise<Settlement>;

/** Options of a commit, a release or an extension. */
export interface SettleOptions {
  /** Cancels the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * Hits that are taken until they are settled or expire.
 *
 * As an `AsyncDisposable` it is released at the end of an `await using` scope, unless it was committed. A
 * reservation that was refused, or that `onError` decided, has no id: settling it does nothing and succeeds.
 */
export class Reservation implements AsyncDisposable {
  /** The decision: whether the request may pass. */
  readonly decision: Decision;
  /** The id; absent if the reservation has nothing to settle. */
  readonly id: string | undefined;
  /** The hits that are reserved; 0 if no limit applies. */
  readonly hits: number;
  /** Milliseconds until it ends by itself, counted from the answer. */
  readonly expiresMs: number | undefined;
  readonly #settler: Settler;
  #settled = false;

  /** @internal */
  constructor(decision: Decision, answer: ReserveAnswer, settler: Settler) {
    this.decision = decision;
    this.id = answer.reservation;
    this.hits = answer.hits;
    this.expiresMs = answer.expiresMs;
    this.#settler = settler;
  }

  /** Whether the request may pass: `decision.allowed`. */
  get allowed(): boolean {
    return this.decision.allowed;
  }

  /**
   * Settles the reservation by the true amount: one number, or one for each descriptor.
   *
   * Rejects with a `CallError` without an answer. It can be repeated: the amount is charged once. After it, the
   * end of a scope does not release, because the charge may have been made.
   */
  async commit(hits: number | readonly number[], options: SettleOptions = {}): Promise<Settlement> {
    const amounts = typeof hits === "number" ? undefined : hits;
    for (const amount of amounts ?? [hits as number]) validateHits(amount);
    return this.#settle("commit", options, true, (protocol, call, reservation, limits) => {
      const descriptors = committed(call.descriptors, amounts);
      const callHits = amounts === undefined ? (hits as number) : undefined;
      return protocol.commit({ ...call, descriptors, reservation, hits: callHits }, limits);
    });
  }

  /** Settles the reservation and gives back all of it. Rejects with a `CallError` without an answer. */
  async release(options: SettleOptions = {}): Promise<Settlement> {
    return this.#settle("release", options, true, (protocol, call, reservation, limits) =>
      protocol.release({ ...call, descriptors: committed(call.descriptors, undefined), reservation }, limits),
    );
  }

  /** Moves the expiry: milliseconds from now, from 1 to 86,400,000. Rejects with a `CallError` without an answer. */
  async extend(expiresMs: number, options: SettleOptions = {}): Promise<Settlement> {
    validateExpiry(expiresMs);
    return this.#settle("extend", options, false, (protocol, call, reservation, limits) =>
      protocol.extend({ ...call, descriptors: committed(call.descriptors, undefined), reservation, expiresMs }, limits),
    );
  }

  /** Releases the reservation unless it was settled. An error is dropped: the reservation then expires. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#settled) return;
    try {
      await this.release();
    } catch {
      // The reservation ends by its expiry.
    }
  }

  async #settle(
    name: string,
    options: SettleOptions,
    settles: boolean,
    make: (
      protocol: ReservationProtocol,
      call: ReservedCall,
      reservation: string,
      limits: CallLimits,
    ) => Promise<Settlement>,
  ): Promise<Settlement> {
    requireKnown("options", options, { signal: true });
    const { id } = this;
    if (id === undefined) return NOTHING_SETTLED;
    return this.#settler(
      name,
      (protocol, call, limits) => {
        const settlement = make(protocol, call, id, limits);
        this.#settled ||= settles;
        return settlement;
      },
      options.signal,
    );
  }
}

/** The descriptors of a settlement: with these amounts, or without hits. */
function committed(descriptors: readonly Descriptor[], amounts: readonly number[] | undefined): Descriptor[] {
  if (amounts === undefined) return descriptors.map(({ entries }) => ({ entries }));
  if (amounts.length !== descriptors.length) {
    throw new RangeError(
      `hits: expected one amount for each of ${String(descriptors.length)} descriptors, got ${String(amounts.length)}`,
    );
  }
  return descriptors.map(({ entries }, index) => ({ entries, hits: amounts[index] ?? 0 }));
}

/** Throws if it is no expiry of a reservation. */
export function validateExpiry(expiresMs: number): void {
  if (!(expiresMs >= 1 && expiresMs <= EXPIRES_MS_MAX)) {
    throw new RangeError(`expiresMs: expected milliseconds from 1 to 86,400,000, got ${String(expiresMs)}`);
  }
}

/** Throws if it is no id of a reservation. */
export function validateId(id: string): void {
  if (typeof id !== "string" || Buffer.byteLength(id) > ID_BYTES_MAX) {
    throw new RangeError("reservation: expected a text of at most 256 bytes");
  }
}
