import type { MethodDefinition } from "@grpc/grpc-js";

import type { CallLimits, Connections } from "./connections.js";
import { defined, type Limit, tightestLimit, type Verdict } from "./decision.js";
import { millisecondsOf } from "./duration.js";
import { CallError } from "./errors.js";
import {
  RateLimitRequest,
  RateLimitResponse,
  RateLimitResponse_Code as Code,
  type RateLimitResponse_DescriptorStatus as DescriptorStatus,
  type RateLimitResponse_RateLimit as RateLimit,
  RateLimitResponse_RateLimit_Unit as Unit,
} from "./gen/rls.js";
import type { CheckCall, CheckProtocol } from "./protocol.js";

/** The one method of Envoy's rate limit service. */
export const SHOULD_RATE_LIMIT: MethodDefinition<RateLimitRequest, RateLimitResponse> = {
  path: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
  requestStream: false,
  responseStream: false,
  requestSerialize: (message) => Buffer.from(RateLimitRequest.encode(message).finish()),
  requestDeserialize: (bytes) => RateLimitRequest.decode(bytes),
  responseSerialize: (message) => Buffer.from(RateLimitResponse.encode(message).finish()),
  responseDeserialize: (bytes) => RateLimitResponse.decode(bytes),
};

/** Envoy's rate limit protocol. */
export class EnvoyProtocol implements CheckProtocol {
  readonly #connections: Connections;

  constructor(connections: Connections) {
    this.#connections = connections;
  }

  close(): void {
    // Its calls are unary.
  }

  async check(call: CheckCall, limits: CallLimits): Promise<Verdict> {
    return this.#ask(call, limits, (hits) => hits);
  }

  async peek(call: CheckCall, limits: CallLimits): Promise<Verdict> {
    return this.#ask(call, limits, () => 0);
  }

  async #ask(call: CheckCall, limits: CallLimits, addend: (hits: number) => number): Promise<Verdict> {
    const request: RateLimitRequest = {
      domain: call.domain,
      descriptors: call.descriptors.map(({ entries, hits }) => ({
        entries: entries.map(([key, value]) => ({ key, value })),
        hitsAddend: wireAddend(addend(hits ?? call.hits ?? 1)),
      })),
      hitsAddend: 0,
    };
    return verdictOf(await this.#connections.unary(SHOULD_RATE_LIMIT, request, limits));
  }
}

/** The hits of a descriptor; 1 is the default and not sent. */
function wireAddend(hits: number): bigint | undefined {
  return hits === 1 ? undefined : BigInt(hits);
}

function verdictOf(answer: RateLimitResponse): Verdict {
  if (answer.overallCode !== Code.OK && answer.overallCode !== Code.OVER_LIMIT) {
    throw new CallError("INTERNAL", "the service answered without a code");
  }
  const limits = answer.statuses.flatMap((status, descriptor) => limitOf(status, descriptor) ?? []);
  const allowed = answer.overallCode === Code.OK;
  const tightest = tightestLimit({ allowed, limits });
  const waits = limits.flatMap((limit) => limit.retryAfterMs ?? []);
  return {
    allowed,
    source: "server",
    limits,
    ...defined({
      remaining: tightest?.remaining,
      resetMs: tightest?.resetMs,
      retryAfterMs: waits.length === 0 ? undefined : Math.max(...waits),
    }),
  };
}

function limitOf(status: DescriptorStatus, descriptor: number): Limit | undefined {
  const { currentLimit } = status;
  if (currentLimit === undefined) return undefined;
  const allowed = status.code !== Code.OVER_LIMIT;
  const resetMs = millisecondsOf(status.durationUntilReset);
  return {
    descriptor,
    name: currentLimit.name,
    rule: "",
    requestsPerUnit: currentLimit.requestsPerUnit,
    window: windowOf(currentLimit),
    allowed,
    remaining: status.limitRemaining,
    ...defined({ resetMs, retryAfterMs: allowed ? undefined : resetMs }),
  };
}

/** The window in words, such as `15 minutes`; empty if it has no unit. */
function windowOf({ unit, unitMultiplier }: RateLimit): string {
  const name = (Unit[unit] as string | undefined)?.toLowerCase();
  if (name === undefined || unit === Unit.UNKNOWN_UNIT || unit === Unit.UNRECOGNIZED) return "";
  const count = unitMultiplier === undefined || unitMultiplier === 0 ? 1 : unitMultiplier;
  return `${String(count)} ${name}${count === 1 ? "" : "s"}`;
}
