import type { CallLimits } from "./connections.js";
import type { Limit, Verdict } from "./decision.js";
import type { Descriptor } from "./descriptor.js";
import type { CallError } from "./errors.js";

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

/** The calls for leases, which only tollgate's own protocol has. */
export interface LeaseProtocol {
  lease(request: LeaseRequest, limits: CallLimits): Promise<LeaseAnswer>;
  /** Makes calls for leases, and gives back hits. Answers those for leases. */
  batch(
    leases: readonly LeaseRequest[],
    returns: readonly ReturnRequest[],
    limits: CallLimits,
  ): Promise<(LeaseAnswer | CallError)[]>;
}

/** A lease to make. */
export interface LeaseRequest {
  readonly check: CheckCall;
  /** The most hits that are wanted. */
  readonly hits: number;
  /** The last lease of these descriptors; empty if there was none. */
  readonly lease: string;
  /** The hits that the client has admitted and refused by itself since it last said so. */
  readonly admitted: number;
  readonly refused: number;
}

/** Hits that go back, and what was decided. */
export interface ReturnRequest extends Omit<LeaseRequest, "hits"> {
  readonly unused: number;
}

/** The answer to a lease. */
export interface LeaseAnswer {
  readonly verdict: Verdict;
  /** Whether the limits can be leased. */
  readonly isLeased: boolean;
  readonly lease: string;
  readonly granted: number;
  readonly expiresMs: number;
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
