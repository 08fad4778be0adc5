import { defined, type Limit, type Verdict } from "./decision.js";
import { type Descriptor, effectiveHits, identity, sizeBytes } from "./descriptor.js";

const AGE_MAX_MS = 1_000;
const DESCRIPTORS_BYTES_MAX = 1_024;

interface Refusal {
  readonly verdict: Verdict;
  readonly hits: readonly number[];
  readonly writtenAt: number;
  readonly endsAt: number;
}

/** A check, as the denial cache compares it. */
export interface CachedCheck {
  readonly key: string;
  readonly hits: readonly number[];
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

  /** The check as the cache compares it; undefined if the cache does not hold such a check. */
  keyOf(domain: string, descriptors: readonly Descriptor[], callHits: number | undefined): CachedCheck | undefined {
    if (this.#entriesMax === 0) return undefined;
    const hits = effectiveHits(descriptors, callHits);
    if (hits.every((number) => number === 0)) return undefined;
    if (sizeBytes(descriptors) > DESCRIPTORS_BYTES_MAX) return undefined;
    return { key: identity(domain, descriptors), hits };
  }

  /** The refusal of an earlier check with at most as many hits. */
  find(check: CachedCheck): Verdict | undefined {
    const refusal = this.#refusals.get(check.key);
    if (refusal === undefined) return undefined;
    const now = this.#clock();
    if (now >= refusal.endsAt) {
      this.#refusals.delete(check.key);
      return undefined;
    }
    if (check.hits.some((hits, index) => hits < (refusal.hits[index] ?? 0))) return undefined;
    return aged(refusal.verdict, now - refusal.writtenAt);
  }

  /** Remembers a refusal of the service. */
  remember(check: CachedCheck, verdict: Verdict): void {
    const age = Math.min(verdict.retryAfterMs ?? AGE_MAX_MS, AGE_MAX_MS);
    if (age <= 0) return;
    const now = this.#clock();
    // Deleted first, so that the map keeps the order of writing.
    this.#refusals.delete(check.key);
    this.#refusals.set(check.key, { verdict, hits: check.hits, writtenAt: now, endsAt: now + age });
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
