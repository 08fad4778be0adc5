import type { CallLimits } from "./connections.js";
import type { Limit, Verdict } from "./decision.js";
import type { Descriptor } from "./descriptor.js";

/** A check or a peek. */
export interface CheckCall {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
  readonly hits: number | undefined;
}

/** A protocol in which checks are sent. */
export interface CheckProtocol {
  /** Ends what is open besides the connections. */
  close(): void;
  check(call: CheckCall, limits: CallLimits): Promise<Verdict>;
  peek(call: CheckCall, limits: CallLimits): Promise<Verdict>;
}

/** The calls that only tollgate's own protocol has. */
export interface ReservationProtocol {
  reserve(call: ReserveCall, limits: CallLimits): Promise<ReserveAnswer>;
  extend(call: ReservationCall & { readonly expiresMs: number }, limits: CallLimits): Promise<Settlement>;
  commit(call: ReservationCall & { readonly hits: number | undefined }, limits: CallLimits): Promise<Settlement>;
  release(call: ReservationCall, limits: CallLimits): Promise<Settlement>;
}

/** A reservation to make. */
export interface ReserveCall extends CheckCall {
  readonly reservation: string | undefined;
  readonly expiresMs: number | undefined;
  readonly onExpiry: "charge" | "release" | undefined;
}

/** The answer to a reservation. */
export interface ReserveAnswer {
  readonly verdict: Verdict;
  readonly reservation: string | undefined;
  readonly hits: number;
  readonly expiresMs: number | undefined;
}

/** A reservation that is there, with the descriptors with which it was made. */
export interface ReservationCall {
  readonly domain: string;
  readonly descriptors: readonly Descriptor[];
  readonly reservation: string;
}

/** The answer to a commit, a release or an extension. */
export interface Settlement {
  /** The hits that were reserved. */
  readonly reserved: number;
  /** The true amount; 0 for a release. If it was settled before, that of the first time. */
  readonly committed: number;
  /** Whether it was settled before, so that nothing changed. */
  readonly repeated: boolean;
  /** What is left of the tightest limit; absent if no limit applies. */
  readonly remaining?: number;
  /** Milliseconds until the tightest limit is unused again. */
  readonly resetMs?: number;
  /** Milliseconds until an extended reservation ends by itself. */
  readonly expiresMs?: number;
  /** The limits that apply. */
  readonly limits: readonly Limit[];
}
