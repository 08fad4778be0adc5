import type { CallError } from "./errors.js";

/**
 * Where a decision comes from: the service, a lease, the denial cache, the local token bucket, or `onError`
 * with `allow` or `deny`.
 */
export type DecisionSource = "server" | "lease" | "cache" | "local" | "allow" | "deny";

/**
 * Why no limit applied: no rules have the domain, no rule with a limit matches, or one that matches is
 * unlimited.
 */
export type NoLimit = "unknown_domain" | "no_rule" | "unlimited";

/** One limit that applies to a call. */
export interface Limit {
  /** The position of its descriptor in the call. */
  readonly descriptor: number;
  /** The rule's name; empty if it has none. */
  readonly name: string;
  /** The rule's path; empty with the protocol `envoy`. */
  readonly rule: string;
  /** The number of hits that the window allows. */
  readonly requestsPerUnit: number;
  /** The window in words, such as `1 minute`. */
  readonly window: string;
  /** Whether this limit allows the hits. */
  readonly allowed: boolean;
  /** What is left of the limit. Above 2^53 - 1 it is 2^53 - 1. */
  readonly remaining: number;
  /** Milliseconds until the limit is unused again. */
  readonly resetMs?: number;
  /** Milliseconds until the same hits would pass; absent if they passed or never will. */
  readonly retryAfterMs?: number;
}

/** The answer to a check, a peek or a reservation. */
export interface Decision {
  /** Whether the request may pass. */
  readonly allowed: boolean;
  /** Where the decision comes from. */
  readonly source: DecisionSource;
  /** What is left of the tightest limit; absent if no limit applies. */
  readonly remaining?: number;
  /** Milliseconds until the tightest limit is unused again; absent if no limit applies. */
  readonly resetMs?: number;
  /** Milliseconds until the same hits would pass; absent if never or not known. */
  readonly retryAfterMs?: number;
  /** The limits that apply. Those of a lease are as they were when it was made. */
  readonly limits: readonly Limit[];
  /**
   * Why no limit applied; absent if one did, without an answer, and with the protocol `envoy`, which does
   * not say.
   */
  readonly noLimit?: NoLimit;
  /** Why the service gave no answer; with the sources `local`, `allow` and `deny` only. */
  readonly error?: CallError;
  /** Milliseconds that the call took, by the real clock. */
  readonly elapsedMs: number;
}

/** A decision before its duration is known. */
export type Verdict = Omit<Decision, "elapsedMs">;

/**
 * The tightest limit of a decision.
 *
 * Of an allowed decision it is the one with the least remaining. Of a refused one it is, among the limits that
 * refused, the first without a retry time, else the one with the longest.
 */
export function tightestLimit(decision: Pick<Decision, "allowed" | "limits">): Limit | undefined {
  let tightest: Limit | undefined;
  for (const limit of decision.limits) {
    if (!decision.allowed && limit.allowed) continue;
    if (tightest === undefined || isTighter(limit, tightest, decision.allowed)) tightest = limit;
  }
  return tightest;
}

function isTighter(limit: Limit, than: Limit, allowed: boolean): boolean {
  if (allowed) return limit.remaining < than.remaining;
  return (limit.retryAfterMs ?? Infinity) > (than.retryAfterMs ?? Infinity);
}

/** The fields of a type without those that are undefined. */
type Defined<T> = { [K in keyof T as undefined extends T[K] ? never : K]: T[K] } & {
  [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined>;
};

/** The object without its fields that are undefined. */
export function defined<T extends object>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}
