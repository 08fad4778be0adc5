import { defined, type Limit, type Verdict } from "./decision.js";
import { effectiveHits } from "./descriptor.js";
import type { CheckCall } from "./protocol.js";

const AGE_MAX_MS = 1_000;

type Hits = Pick<CheckCall, "descriptors" | "hits">;

interface Refusal {
  readonly verdict: Verdict;
  readonly hits: readonly number[];
  readonly writtenAt: number;
  readonly endsAt: number;
}

/** Refusals of the service, which are repeated without a call for a second at most. */
export class DenialCache {
  readonly #entriesMax: number;
  readonly #clock: () => number;
  /** In the order in which they were written. */
  readonly #refusals = new Map<string, Refusal>();

  constructor(entriesMax: number, clock: () => number) {
    this.#entriesMax = entriesMax;
    this.#clock = clock;
  }

  /** The number of refusals that are held. */
  get size(): number {
    return this.#refusals.size;
  }

  /** The refusal of an earlier check with at most as many hits. */
  find(key: string, { descriptors, hits: callHits }: Hits): Verdict | undefined {
    const refusal = this.#refusals.get(key);
    if (refusal === undefined) return undefined;
    const now = this.#clock();
    if (now >= refusal.endsAt) {
      this.#refusals.delete(key);
      return undefined;
    }
    if (effectiveHits(descriptors, callHits).some((hits, index) => hits < (refusal.hits[index] ?? 0))) return undefined;
    return aged(refusal.verdict, now - refusal.writtenAt);
  }

  /** Remembers a refusal of the service, unless no hits were asked for. */
  remember(key: string, { descriptors, hits: callHits }: Hits, verdict: Verdict): void {
    const hits = effectiveHits(descriptors, callHits);
    if (this.#entriesMax === 0 || hits.every((number) => number === 0)) return;
    const age = Math.min(verdict.retryAfterMs ?? AGE_MAX_MS, AGE_MAX_MS);
    if (age <= 0) return;
    const now = this.#clock();
    // Deleted first, so that the map keeps the order of writing.
    this.#refusals.delete(key);
    this.#refusals.set(key, { verdict, hits, writtenAt: now, endsAt: now + age });
    if (this.#refusals.size > this.#entriesMax) this.#dropOldest();
  }

  /** Drops all refusals. */
  clear(): void {
    this.#refusals.clear();
  }

  #dropOldest(): void {
    const oldest = this.#refusals.keys().next();
    if (!oldest.done) this.#refusals.delete(oldest.value);
  }
}

/** The refusal with its times less the time since it was given. */
function aged(verdict: Verdict, ageMs: number): Verdict {
  const less = <T extends Verdict | Limit>(value: T): T => ({
    ...value,
    ...defined({ resetMs: lessTime(value.resetMs, ageMs), retryAfterMs: lessTime(value.retryAfterMs, ageMs) }),
  });
  return { ...less(verdict), source: "cache", limits: verdict.limits.map(less) };
}

function lessTime(timeMs: number | undefined, ageMs: number): number | undefined {
  return timeMs === undefined ? undefined : Math.max(0, timeMs - ageMs);
}
