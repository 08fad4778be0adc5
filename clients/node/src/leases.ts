import { setTimeout as sleep } from "node:timers/promises";

import type { Breaker } from "./breaker.js";
import type { CallLimits } from "./connections.js";
import type { Verdict } from "./decision.js";
import { CallError } from "./errors.js";
import type { CheckCall, LeaseAnswer, LeaseProtocol, LeaseRequest, ReturnRequest } from "./protocol.js";

/** Keys that are leased, or that may be soon. */
const KEYS_MAX = 10_000;
/** Hits that are wanted, and those of a check that takes leased hits. */
const HITS_MAX = 1_000;
/** Hits that are wanted where nothing was admitted lately. */
const FIRST_HITS = 32;
/** So many times the hits that were admitted lately are wanted. */
const GROWTH = 4;
/** The same by a round, which renews before they are used up. */
const ROUND_GROWTH = 2;
/** The next lease is asked for when this part of a lease is left: one in so many. */
const LOW_SHARE = 4;
/** Between two rounds, which give back, say counts and renew. */
const ROUND_MS = 250;
/**
 * A key that is unused for so long gives its hits back. Two checks within it make a key one that is leased: a lease
 * at the first one would cost keys that are seen once two calls each.
 */
const IDLE_MS = 1_000;
/** Leases that are renewed by age: a round comes in their last quarter. */
const RENEWED_VALIDITY_MIN_MS = 1_000;
/** The part of its time in which a lease is renewed, and goes back once the next one is there: one in so many. */
const LAST_PART = 4;
const NOT_LEASED_MIN_MS = 1_000;
const NOT_LEASED_MAX_MS = 60_000;
/** A refusal is remembered for so long at most, as in the denial cache. */
const REFUSED_MAX_MS = 1_000;
/** Between two returns that only say counts. */
const TELL_MS = 1_000;
/** A service without leases is not asked for so long. */
const UNSUPPORTED_MS = 60_000;
const BATCH_CALLS_MAX = 100;
/** The least time of a batch. No check waits for it. */
const BATCH_MS = 1_000;

interface Lease {
  readonly id: string;
  left: number;
  readonly validityMs: number;
  readonly endsAt: number;
}

const NO_LEASE: Lease = Object.freeze({ id: "", left: 0, validityMs: 0, endsAt: -Infinity });

/** How a call for a lease ended: with the refusal where no hit was left, or why it has no answer. */
interface Outcome {
  readonly refusal?: Verdict;
  readonly error?: CallError;
}

/** A call for a lease, which checks can wait for. */
export class LeaseCall {
  readonly outcome: Promise<Outcome>;
  /** Ends the call. */
  readonly end: (outcome: Outcome) => void;

  constructor(
    readonly entry: Entry,
    readonly request: LeaseRequest,
    readonly startedAt: number,
    /** Whether a round makes the call, which may take longer than a check. */
    readonly isBatched: boolean,
  ) {
    let end: (outcome: Outcome) => void = () => undefined;
    this.outcome = new Promise((resolve) => {
      end = resolve;
    });
    this.end = end;
  }
}

/** A domain with descriptors. */
class Entry {
  /** `next` takes the place of `current` once that lacks hits. */
  current = NO_LEASE;
  next = NO_LEASE;
  /** The id of the newest lease, its hits, and what its answer said. */
  newest = "";
  granted = 0;
  answer: Verdict | undefined;
  answeredAt = 0;
  /** Hits that the service was not told yet. */
  admitted = 0;
  refused = 0;
  /** When a lease may be asked for again, and when counts are said without one. */
  noLeaseUntil = -Infinity;
  tellAt = -Infinity;
  call: LeaseCall | undefined;

  constructor(
    readonly check: CheckCall,
    public lastUse: number,
  ) {}

  left(now: number): number {
    return (has(this.current, 1, now) ? this.current.left : 0) + (has(this.next, 1, now) ? this.next.left : 0);
  }

  /** The verdict on a check that took hits, of which so many are left. */
  verdict(left: number, now: number): Verdict {
    const { remaining, resetMs, limits = [] } = this.answer ?? {};
    const verdict: { -readonly [K in keyof Verdict]: Verdict[K] } = { allowed: true, source: "lease", limits };
    if (remaining !== undefined) verdict.remaining = remaining + left;
    if (resetMs !== undefined) verdict.resetMs = Math.max(0, resetMs - (now - this.answeredAt));
    return verdict;
  }
}

/** Clients whose hits go back when the process ends by itself. */
const leasing = new Set<Leases>();

function giveBackAll(): void {
  for (const leases of leasing) leases.giveBackAll();
}

/** What leases need of their client. */
export interface LeaseOptions {
  readonly protocol: LeaseProtocol;
  readonly clock: () => number;
  readonly breaker: Breaker;
  /** Makes a call if the breaker permits it. */
  readonly guarded: <T>(make: () => Promise<T>) => Promise<T>;
  /** The limits of a call that begins now, and has at least so many milliseconds. */
  readonly limits: (leastMs: number) => CallLimits;
}

/** Leases of a client: hits that the service has taken, for the client to admit without a call. */
export class Leases {
  readonly #options: LeaseOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #tasks = new Set<Promise<void>>();
  /** Hits that the next round gives back. */
  #returns: ReturnRequest[] = [];
  #rounds: NodeJS.Timeout | undefined;
  #unsupportedUntil = -Infinity;
  #closed = false;
  /** Plans rounds; undefined in tests that make them. They do not keep the process alive. */
  schedule: ((round: () => void) => NodeJS.Timeout) | undefined = (round) => setInterval(round, ROUND_MS).unref();

  constructor(options: LeaseOptions) {
    this.#options = options;
  }

  /** The number of keys. */
  get size(): number {
    return this.#entries.size;
  }

  /** The hits of a check that may take leased hits; 0 if it may not. */
  static hitsOf({ descriptors, hits = 1 }: CheckCall): number {
    if (descriptors.length === 0 || hits > HITS_MAX) return 0;
    return descriptors.some((descriptor) => descriptor.hits !== undefined) ? 0 : hits;
  }

  /** The verdict by leased hits, or the call that the check waits for. A check without either is to be sent. */
  decide(key: string, check: CheckCall, hits: number): Verdict | LeaseCall | undefined {
    const now = this.#options.clock();
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      this.#add(key, new Entry(check, now));
      return undefined;
    }
    const isRepeated = now - entry.lastUse < IDLE_MS;
    entry.lastUse = now;
    if (this.#take(entry, hits, now)) {
      const left = entry.left(now);
      const isLow = left <= Math.floor(entry.granted / LOW_SHARE);
      if (isLow && this.#mayLease(entry, now) && this.#options.breaker.isClosed) this.#lease(entry, 1);
      return entry.verdict(left, now);
    }
    if (entry.call === undefined && isRepeated && this.#mayLease(entry, now)) this.#lease(entry, hits);
    return entry.call?.isBatched ? undefined : entry.call;
  }

  /** The verdict on a check that has waited for the call; undefined if it is to be sent. */
  decideAfter({ entry }: LeaseCall, { refusal, error }: Outcome, hits: number): Verdict | undefined {
    if (error !== undefined) throw error;
    const now = this.#options.clock();
    if (this.#take(entry, hits, now)) return entry.verdict(entry.left(now), now);
    if (refusal === undefined || hits > 1) return undefined;
    entry.refused += 1;
    return refusal;
  }

  /** Counts hits that the denial cache refused. */
  refuse(key: string, hits: number): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    entry.refused += hits;
    entry.lastUse = this.#options.clock();
  }

  /** Gives back the hits of idle keys, says counts, and renews leases by their age. */
  round(): void {
    const now = this.#options.clock();
    const renews = this.#options.breaker.isClosed;
    const calls: LeaseCall[] = [];
    for (const [key, entry] of this.#entries) {
      const { current, next } = entry;
      if (entry.call !== undefined) continue;
      if (now - entry.lastUse >= IDLE_MS) {
        this.#empty(entry, now);
        if (now >= entry.noLeaseUntil) this.#entries.delete(key);
      } else if (has(next, 1, now)) {
        if (isNearEnd(current, now)) this.#advance(entry, now);
      } else if (!has(current, 1, now)) {
        if (now < entry.tellAt) continue;
        entry.tellAt = now + TELL_MS;
        this.#empty(entry, now);
      } else if (current.validityMs >= RENEWED_VALIDITY_MIN_MS && isNearEnd(current, now)) {
        if (renews && this.#mayLease(entry, now)) calls.push(this.#prepare(entry, 1, true));
      }
    }
    this.#begin(this.#send(calls, this.#takeReturns()));
    if (this.#entries.size === 0) this.#endRounds();
  }

  /** Gives back all hits in the background. The process ends when that has. */
  giveBackAll(): void {
    this.#emptyAll();
    this.#begin(this.#send([], this.#takeReturns()));
  }

  /** Gives back all hits, within the deadline of a call. No further call is made. */
  async close(): Promise<void> {
    this.#closed = true;
    const limits = this.#options.limits(0);
    const inFlight = Array.from(this.#entries.values()).flatMap(({ call }) => call?.outcome ?? []);
    const wait = sleep(limits.deadline - performance.now(), undefined, { ref: false });
    await Promise.race([Promise.all(inFlight), wait]);
    this.#emptyAll();
    await this.#send([], this.#takeReturns(), limits);
  }

  /** Waits until no call is in flight. */
  async settled(): Promise<void> {
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
  }

  /** Adds a key whose first check is sent. A full table keeps its keys. */
  #add(key: string, entry: Entry): void {
    if (this.#closed || this.#entries.size >= KEYS_MAX) return;
    this.#entries.set(key, entry);
    if (this.#rounds !== undefined || this.schedule === undefined) return;
    this.#rounds = this.schedule(() => {
      this.round();
    });
    if (leasing.size === 0) process.on("beforeExit", giveBackAll);
    leasing.add(this);
  }

  #endRounds(): void {
    clearInterval(this.#rounds);
    this.#rounds = undefined;
    leasing.delete(this);
    if (leasing.size === 0) process.off("beforeExit", giveBackAll);
  }

  /** Takes hits of a lease that has all of them. */
  #take(entry: Entry, hits: number, now: number): boolean {
    if (!has(entry.current, hits, now)) {
      if (!has(entry.next, hits, now)) return false;
      this.#advance(entry, now);
    }
    entry.current.left -= hits;
    entry.admitted += hits;
    return true;
  }

  /** Makes the next lease the current one. What was left of that goes back. */
  #advance(entry: Entry, now: number): void {
    this.#giveBack(entry, now);
    entry.current = entry.next;
    entry.next = NO_LEASE;
  }

  #giveBack({ check, current }: Entry, now: number): void {
    if (!has(current, 1, now)) return;
    this.#returns.push({ check, lease: current.id, unused: current.left, admitted: 0, refused: 0 });
  }

  /** Gives back all hits of a key, and says its counts. */
  #empty(entry: Entry, now: number): void {
    if (has(entry.next, 1, now)) this.#advance(entry, now);
    const { check, current, newest, admitted, refused } = entry;
    const isNewest = current.id === newest;
    if (!isNewest) this.#giveBack(entry, now);
    const unused = isNewest && has(current, 1, now) ? current.left : 0;
    entry.current = NO_LEASE;
    if (newest === "" || unused + admitted + refused === 0) return;
    this.#returns.push({ check, lease: newest, unused, admitted, refused });
    entry.admitted = 0;
    entry.refused = 0;
  }

  #emptyAll(): void {
    const now = this.#options.clock();
    for (const entry of this.#entries.values()) this.#empty(entry, now);
    this.#entries.clear();
    this.#endRounds();
  }

  #takeReturns(): ReturnRequest[] {
    const returns = this.#returns;
    this.#returns = [];
    return returns;
  }

  #mayLease(entry: Entry, now: number): boolean {
    const until = Math.max(entry.noLeaseUntil, this.#unsupportedUntil);
    return !this.#closed && entry.call === undefined && now >= until && !has(entry.next, 1, now);
  }

  #prepare(entry: Entry, hits: number, isBatched: boolean): LeaseCall {
    const { check, newest, admitted, refused } = entry;
    const growth = isBatched ? ROUND_GROWTH : GROWTH;
    const lately = admitted > 0 ? growth * admitted : FIRST_HITS;
    const wanted = Math.min(Math.max(lately, GROWTH * hits), HITS_MAX);
    const request = { check, hits: wanted, lease: newest, admitted, refused };
    entry.call = new LeaseCall(entry, request, this.#options.clock(), isBatched);
    return entry.call;
  }

  /** Asks for a lease in the background. */
  #lease(entry: Entry, hits: number): void {
    const { protocol, guarded, limits } = this.#options;
    const call = this.#prepare(entry, hits, false);
    const answered = guarded(() => protocol.lease(call.request, limits(0))).catch((error: unknown) => error as Error);
    this.#begin(
      answered.then((answer) => {
        this.#finish(call, answer);
      }),
    );
  }

  #begin(task: Promise<void>): void {
    this.#tasks.add(task);
    void task.then(() => this.#tasks.delete(task));
  }

  /** Records the answer to a call for a lease, or why it has none. */
  #finish(call: LeaseCall, answer: LeaseAnswer | Error): void {
    const { entry, request, startedAt } = call;
    const now = this.#options.clock();
    entry.call = undefined;
    if (answer instanceof Error) {
      const isUnsupported = answer instanceof CallError && answer.code === "UNIMPLEMENTED";
      if (isUnsupported) this.#unsupportedUntil = now + UNSUPPORTED_MS;
      entry.noLeaseUntil = now + ROUND_MS;
      call.end(answer instanceof CallError && !isUnsupported ? { error: answer } : {});
      return;
    }
    const { verdict, lease, granted, expiresMs, isLeased } = answer;
    entry.admitted -= request.admitted;
    entry.refused -= request.refused;
    if (!isLeased) {
      entry.noLeaseUntil = now + Math.min(Math.max(expiresMs, NOT_LEASED_MIN_MS), NOT_LEASED_MAX_MS);
    } else if (!verdict.allowed) {
      entry.noLeaseUntil = now + Math.min(verdict.retryAfterMs ?? REFUSED_MAX_MS, REFUSED_MAX_MS);
    } else {
      const endsAt = startedAt + expiresMs;
      const made = { id: lease, left: granted, validityMs: expiresMs, endsAt };
      if (!has(entry.current, 1, now)) this.#advance(entry, now);
      if (has(entry.current, 1, now)) entry.next = made;
      else entry.current = made;
      Object.assign(entry, { newest: lease, granted, answer: verdict, answeredAt: startedAt });
      entry.tellAt = endsAt + ROUND_MS;
      // Near the end checks that are sent are fair, and cost no more.
      if (granted <= 1) entry.noLeaseUntil = endsAt;
    }
    call.end(isLeased && !verdict.allowed ? { refusal: verdict } : {});
  }

  /** Sends calls for leases and returns in batches. */
  async #send(calls: LeaseCall[], returns: ReturnRequest[], limits?: CallLimits): Promise<void> {
    const { protocol, guarded } = this.#options;
    while (calls.length + returns.length > 0) {
      if (this.#closed && calls.length > 0) {
        for (const call of calls.splice(0)) this.#finish(call, new Error("the client was closed"));
        continue;
      }
      const some = calls.splice(0, BATCH_CALLS_MAX);
      const requests = some.map(({ request }) => request);
      const back = returns.splice(0, BATCH_CALLS_MAX - some.length);
      const send = (): Promise<(LeaseAnswer | CallError)[]> =>
        protocol.batch(requests, back, limits ?? this.#options.limits(BATCH_MS));
      // As other calls that settle, returns alone do not ask the breaker.
      const sent = some.length > 0 ? guarded(send) : send();
      const answers = await sent.catch((error: unknown) => error as Error);
      some.forEach((call, index) => {
        this.#finish(call, answers instanceof Error ? answers : (answers[index] ?? new Error("no answer")));
      });
    }
  }
}

function isNearEnd({ endsAt, validityMs }: Lease, now: number): boolean {
  return endsAt - now <= validityMs / LAST_PART;
}

function has(lease: Lease, hits: number, now: number): boolean {
  return lease.left >= hits && now < lease.endsAt;
}
