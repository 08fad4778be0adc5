import { status } from "@grpc/grpc-js";

import { type Decision, type Limit, tightestLimit } from "../decision.js";
import { requireKnown } from "../known_options.js";
import { type LimitOptions, requireStyles } from "./options.js";

/** The headers of the styles but `ratelimit-policy`: limit, remaining and reset. */
const NAMES = {
  ratelimit: ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
  "x-ratelimit": ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"],
} as const;
/** Seconds of the units of a window whose length is fixed. */
const UNITS: Readonly<Record<string, number>> = { second: 1, minute: 60, hour: 3_600, day: 86_400, week: 604_800 };
const UNAVAILABLE_RETRY_MS = 1_000;
const PLAIN_TEXT = "text/plain; charset=utf-8";

/** Options of answers. */
export type AnswerOptions = Pick<
  LimitOptions<never>,
  "shadow" | "headers" | "status" | "body" | "contentType" | "errorStatus"
>;

/** Headers: pairs of name and value. */
export type Headers = readonly (readonly [name: string, value: string])[];

/** What an HTTP framework does with a decision. */
export interface HttpAnswer {
  readonly headers: Headers;
  /** The response that refuses the request; absent if the request passes. */
  readonly refusal?: { readonly status: number; readonly body: string; readonly contentType: string };
}

/** What a gRPC server does with a decision. */
export interface GrpcAnswer {
  readonly metadata: Headers;
  /** The status that refuses the call; absent if the call passes. */
  readonly refusal?: { readonly code: status; readonly message: string; readonly retryMs: number | undefined };
}

/** The HTTP answer to a decision. */
export function httpAnswer(decision: Decision, options: AnswerOptions): HttpAnswer {
  if (options.shadow) return { headers: [] };
  if (decision.source === "deny") {
    const refusal = { status: options.errorStatus ?? 503, body: "Service Unavailable", contentType: PLAIN_TEXT };
    return { headers: [["Retry-After", seconds(UNAVAILABLE_RETRY_MS)]], refusal };
  }
  const headers = rateLimitHeaders(decision, options);
  if (decision.allowed) return { headers };
  const { retryAfterMs } = decision;
  return {
    headers: retryAfterMs === undefined ? headers : [...headers, ["Retry-After", retryAfterSeconds(retryAfterMs)]],
    refusal: {
      status: options.status ?? 429,
      body: options.body ?? "Too Many Requests",
      contentType: options.contentType ?? PLAIN_TEXT,
    },
  };
}

/** Options of `httpRefusal`. */
export type RefusalOptions = Omit<AnswerOptions, "shadow">;

/** The response to a refused request. */
export interface HttpRefusal {
  readonly status: number;
  /** The content type, `Retry-After` and the rate limit headers. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const KNOWN_REFUSAL: Record<keyof RefusalOptions, true> = {
  headers: true,
  status: true,
  body: true,
  contentType: true,
  errorStatus: true,
};

/**
 * The response to a request that a decision refuses, as the middleware sends it; undefined if it passes.
 *
 * For handlers that call `check` themselves. Express writes it with
 * `response.status(refusal.status).set(refusal.headers).send(refusal.body)`, and Fastify with
 * `reply.code(refusal.status).headers(refusal.headers).send(refusal.body)`.
 */
export function httpRefusal(decision: Decision, options: RefusalOptions = {}): HttpRefusal | undefined {
  requireKnown("options", options, KNOWN_REFUSAL);
  requireStyles(options.headers ?? []);
  const { headers, refusal } = httpAnswer(decision, options);
  if (refusal === undefined) return undefined;
  const { status, body, contentType } = refusal;
  return { status, headers: { "Content-Type": contentType, ...Object.fromEntries(headers) }, body };
}

/** The gRPC answer to a decision. */
export function grpcAnswer(decision: Decision, options: AnswerOptions): GrpcAnswer {
  if (options.shadow) return { metadata: [] };
  if (decision.source === "deny") {
    const message = "rate limit service unavailable";
    return { metadata: [], refusal: { code: status.UNAVAILABLE, message, retryMs: UNAVAILABLE_RETRY_MS } };
  }
  const metadata = rateLimitHeaders(decision, options).map(([name, value]) => [name.toLowerCase(), value] as const);
  if (decision.allowed) return { metadata };
  const message = "rate limited";
  return { metadata, refusal: { code: status.RESOURCE_EXHAUSTED, message, retryMs: decision.retryAfterMs } };
}

/** The rate limit headers of the tightest limit. */
function rateLimitHeaders(decision: Decision, options: AnswerOptions): Headers {
  const tightest = tightestLimit(decision);
  if (tightest === undefined) return [];
  const { source, remaining, resetMs } = decision;
  // The limits of a lease are as they were when it was made.
  const isLeased = source === "lease" && remaining !== undefined;
  const limit = isLeased ? { ...tightest, remaining, ...(resetMs !== undefined && { resetMs }) } : tightest;
  return (options.headers ?? ["ratelimit"]).flatMap((style): Headers => {
    if (style === "ratelimit-policy") return policyHeaders(limit);
    const [limitName, remainingName, resetName] = NAMES[style];
    return [
      [limitName, String(limit.requestsPerUnit)],
      [remainingName, String(limit.remaining)],
      [resetName, seconds(limit.resetMs ?? 0)],
    ];
  });
}

/** The headers of draft-ietf-httpapi-ratelimit-headers-10. */
function policyHeaders({ name, requestsPerUnit, window, remaining, resetMs }: Limit): Headers {
  // A string of structured fields is printable ASCII.
  const known = /^[ -~]+$/.test(name) ? name : "default";
  const quoted = `"${known.replace(/["\\]/g, "\\$&")}"`;
  const [, count, unit] = /^(\d+) (\w+?)s?$/.exec(window) ?? [];
  const unitSeconds = UNITS[unit ?? ""];
  const length = unitSeconds === undefined ? "" : `;w=${String(Number(count) * unitSeconds)}`;
  const reset = resetMs === undefined ? "" : `;t=${seconds(resetMs)}`;
  return [
    ["RateLimit-Policy", `${quoted};q=${String(requestsPerUnit)}${length}`],
    ["RateLimit", `${quoted};r=${String(remaining)}${reset}`],
  ];
}

function retryAfterSeconds(milliseconds: number): string {
  return seconds(Math.max(milliseconds, 1_000));
}

function seconds(milliseconds: number): string {
  return String(Math.ceil(milliseconds / 1_000));
}
