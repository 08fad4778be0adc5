import { defined } from "./decision.js";

const BUCKETS_MAX = 10_000;
/** A token in the unit of a level: a rate of 1 a second adds 1 every microsecond. */
const TOKEN = 1_000_000;

interface Bucket {
  level: number;
  filledAtUs: number;
}

/** What a bucket answers: whether it had the tokens, or when it will have them. */
export interface BucketAnswer {
  readonly allowed: boolean;
  /** Milliseconds until the tokens are there; absent if never. */
  readonly retryAfterMs?: number;
}

/** Token buckets that decide while the service does not answer: one for each list of descriptors. */
export class LocalBuckets {
  readonly #perSecond: number;
  readonly #levelMax: number;
  readonly #clock: () => number;
  /** In the order in which they were made. */
  readonly #buckets = new Map<string, Bucket>();

  constructor(perSecond: number, burst: number, clock: () => number) {
    this.#perSecond = perSecond;
    this.#levelMax = burst * TOKEN;
    this.#clock = clock;
  }

  /** The number of buckets. */
  get size(): number {
    return this.#buckets.size;
  }

  /** Takes the tokens if all are there. */
  take(key: string, tokens: number): BucketAnswer {
    const need = tokens * TOKEN;
    const bucket = this.#filled(key);
    if (need <= bucket.level) {
      bucket.level -= need;
      return { allowed: true };
    }
    const never = need > this.#levelMax;
    const retryAfterMs = never ? undefined : Math.ceil((need - bucket.level) / this.#perSecond) / 1_000;
    return { allowed: false, ...defined({ retryAfterMs }) };
  }

  /** Drops all buckets. */
  clear(): void {
    this.#buckets.clear();
  }

  #filled(key: string): Bucket {
    const nowUs = Math.round(this.#clock() * 1_000);
    let bucket = this.#buckets.get(key);
    if (bucket === undefined) {
      bucket = { level: this.#levelMax, filledAtUs: nowUs };
      this.#buckets.set(key, bucket);
      if (this.#buckets.size > BUCKETS_MAX) this.#dropOldest();
    }
    const elapsedUs = Math.max(0, nowUs - bucket.filledAtUs);
    bucket.level = Math.min(this.#levelMax, bucket.level + elapsedUs * this.#perSecond);
    bucket.filledAtUs += elapsedUs;
    return bucket;
  }

  #dropOldest(): void {
    const oldest = this.#buckets.keys().next();
    if (!oldest.done) this.#buckets.delete(oldest.value);
  }
}
