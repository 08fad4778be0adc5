import { CheckStream } from "./check_stream.js";
import type { CallLimits, Connections } from "./connections.js";
import { defined, type Limit, type NoLimit, type Verdict } from "./decision.js";
import type { Descriptor } from "./descriptor.js";
import { durationOf, millisecondsOf, numberOf } from "./duration.js";
import { CallError, callError } from "./errors.js";
import {
  type Answer,
  type CheckRequest,
  type CheckResponse,
  type Descriptor as WireDescriptor,
  type LeaseRequest as WireLease,
  type LeaseResponse,
  type LimitStatus,
  OnExpiry,
  RateLimitsService,
  type ReserveResponse,
  type ReturnRequest as WireReturn,
  type SettleResponse,
  Verdict as WireVerdict,
} from "./gen/tollgate/v1/rate_limits.js";
import type {
  CheckCall,
  CheckProtocol,
  LeaseAnswer,
  LeaseProtocol,
  LeaseRequest,
  ReservationCall,
  ReservationProtocol,
  ReserveAnswer,
  ReserveCall,
  ReturnRequest,
  Settlement,
} from "./protocol.js";

const NO_LIMITS: readonly NoLimit[] = ["unknown_domain", "no_rule", "unlimited"];

const ON_EXPIRY = { charge: OnExpiry.CHARGE, release: OnExpiry.RELEASE };

/** The protocol `tollgate.v1.RateLimits`. */
export class TollgateProtocol implements CheckProtocol, ReservationProtocol, LeaseProtocol {
  readonly #connections: Connections;
  readonly #stream: CheckStream | undefined;

  constructor(connections: Connections, batching: boolean) {
    this.#connections = connections;
    this.#stream = batching ? new CheckStream(connections) : undefined;
  }

  close(): void {
    this.#stream?.close();
  }

  async check(call: CheckCall, limits: CallLimits): Promise<Verdict> {
    const request = checkRequest(call);
    if (this.#stream !== undefined) return verdictOf(await this.#stream.check(request, limits));
    return verdictOf(await this.#connections.unary(RateLimitsService.check, request, limits));
  }

  async peek(call: CheckCall, limits: CallLimits): Promise<Verdict> {
    return verdictOf(await this.#connections.unary(RateLimitsService.peek, checkRequest(call), limits));
  }

  async reserve(call: ReserveCall, limits: CallLimits): Promise<ReserveAnswer> {
    const request = {
      ...checkRequest(call),
      reservation: call.reservation ?? "",
      expires: call.expiresMs === undefined ? undefined : durationOf(call.expiresMs),
      onExpiry: call.onExpiry === undefined ? OnExpiry.UNSPECIFIED : ON_EXPIRY[call.onExpiry],
    };
    const answer = await this.#connections.unary(RateLimitsService.reserve, request, limits);
    const verdict = verdictOf(answer);
    return {
      verdict,
      reservation: verdict.allowed && answer.reservation !== "" ? answer.reservation : undefined,
      hits: numberOf(answer.hits),
      expiresMs: millisecondsOf(answer.expires),
    };
  }

  async lease(request: LeaseRequest, limits: CallLimits): Promise<LeaseAnswer> {
    return leaseAnswerOf(await this.#connections.unary(RateLimitsService.lease, wireLease(request), limits));
  }

  async batch(
    leases: readonly LeaseRequest[],
    returns: readonly ReturnRequest[],
    limits: CallLimits,
  ): Promise<(LeaseAnswer | CallError)[]> {
    const calls = [
      ...leases.map((lease) => ({ $case: "lease", lease: wireLease(lease) }) as const),
      ...returns.map((giveBack) => ({ $case: "giveBack", giveBack: wireReturn(giveBack) }) as const),
    ];
    const request = { calls: calls.map((call) => ({ tag: 0n, call })) };
    const { answers } = await this.#connections.unary(RateLimitsService.batch, request, limits);
    return leases.map((_, index) => leaseOf(answers[index]?.answer));
  }

  async extend(call: ReservationCall & { readonly expiresMs: number }, limits: CallLimits): Promise<Settlement> {
    const request = { ...reservationRequest(call), expires: durationOf(call.expiresMs) };
    return settlementOf(await this.#connections.unary(RateLimitsService.extend, request, limits));
  }

  async commit(call: ReservationCall & { readonly hits: number | undefined }, limits: CallLimits): Promise<Settlement> {
    const request = { ...reservationRequest(call), hits: wireHits(call.hits) };
    return settlementOf(await this.#connections.unary(RateLimitsService.commit, request, limits));
  }

  async release(call: ReservationCall, limits: CallLimits): Promise<Settlement> {
    const request = reservationRequest(call);
    return settlementOf(await this.#connections.unary(RateLimitsService.release, request, limits));
  }
}

/** The message of a check. */
export function checkRequest(call: CheckCall): CheckRequest {
  return { domain: call.domain, descriptors: call.descriptors.map(wireDescriptor), hits: wireHits(call.hits) };
}

/** The verdict of an answer. Throws if the answer has none. */
export function verdictOf(answer: CheckResponse | ReserveResponse | LeaseResponse): Verdict {
  if (answer.verdict !== WireVerdict.OK && answer.verdict !== WireVerdict.OVER_LIMIT) {
    throw new CallError("INTERNAL", "the service answered without a verdict");
  }
  return {
    allowed: answer.verdict === WireVerdict.OK,
    source: "server",
    limits: answer.limits.map(limitOf),
    ...defined({
      remaining: answer.remaining === undefined ? undefined : numberOf(answer.remaining),
      resetMs: millisecondsOf(answer.reset),
      retryAfterMs: millisecondsOf(answer.retryAfter),
      // A reason of a newer service is dropped.
      noLimit: NO_LIMITS.find((reason) => "noLimit" in answer && reason === answer.noLimit),
    }),
  };
}

function leaseAnswerOf(answer: LeaseResponse): LeaseAnswer {
  return {
    verdict: verdictOf(answer),
    isLeased: answer.notLeased === "",
    lease: answer.lease,
    granted: numberOf(answer.granted),
    expiresMs: millisecondsOf(answer.expires) ?? 0,
  };
}

/** The answer to a lease of a batch, or why it has none. */
function leaseOf(answer: Answer["answer"]): LeaseAnswer | CallError {
  if (answer?.$case === "failure") return callError(answer.failure.code, answer.failure.message);
  if (answer?.$case !== "lease") return new CallError("INTERNAL", "the service answered another call");
  try {
    return leaseAnswerOf(answer.lease);
  } catch (error) {
    return error as CallError;
  }
}

function wireLease(request: LeaseRequest): WireLease {
  return { ...reported(request), hits: BigInt(request.hits) };
}

function wireReturn(request: ReturnRequest): WireReturn {
  return { ...reported(request), unused: BigInt(request.unused) };
}

/** What a lease and a return have in common. Counts of 0 are not sent. */
function reported({ check, lease, admitted, refused }: Omit<LeaseRequest, "hits">): Omit<WireLease, "hits"> {
  return {
    domain: check.domain,
    descriptors: check.descriptors.map(wireDescriptor),
    lease,
    admitted: wireHits(admitted || undefined),
    refused: wireHits(refused || undefined),
  };
}

function settlementOf(answer: SettleResponse): Settlement {
  return {
    reserved: numberOf(answer.reserved),
    committed: numberOf(answer.committed),
    repeated: answer.repeated,
    limits: answer.limits.map(limitOf),
    ...defined({
      remaining: answer.remaining === undefined ? undefined : numberOf(answer.remaining),
      resetMs: millisecondsOf(answer.reset),
      expiresMs: millisecondsOf(answer.expires),
    }),
  };
}

function limitOf(limit: LimitStatus): Limit {
  return {
    descriptor: limit.descriptor,
    name: limit.name,
    rule: limit.rule,
    requestsPerUnit: numberOf(limit.requestsPerUnit),
    window: limit.window,
    allowed: limit.verdict !== WireVerdict.OVER_LIMIT,
    remaining: numberOf(limit.remaining),
    ...defined({ resetMs: millisecondsOf(limit.reset), retryAfterMs: millisecondsOf(limit.retryAfter) }),
  };
}

function reservationRequest({ domain, descriptors, reservation }: ReservationCall): {
  domain: string;
  descriptors: WireDescriptor[];
  reservation: string;
} {
  return { domain, descriptors: descriptors.map(wireDescriptor), reservation };
}

function wireDescriptor(descriptor: Descriptor): WireDescriptor {
  return {
    entries: descriptor.entries.map(([key, value]) => ({ key, value })),
    hits: wireHits(descriptor.hits),
  };
}

function wireHits(hits: number | undefined): bigint | undefined {
  return hits === undefined ? undefined : BigInt(hits);
}
