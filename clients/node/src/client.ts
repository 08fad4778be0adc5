import { Breaker, type Permit } from "./breaker.js";
import { abortReason, type CallLimits, Connections } from "./connections.js";
import type { Decision, Verdict } from "./decision.js";
import { DenialCache } from "./denial_cache.js";
import { checkKey, type DescriptorLike, effectiveHits, identity, toDescriptors, validateHits } from "./descriptor.js";
import { breakerOpen, CallError, ClosedError, isServiceFailure } from "./errors.js";
import { FailureLog } from "./failure_log.js";
import { requireKnown } from "./known_options.js";
import { LeaseCall, Leases } from "./leases.js";
import { LocalBuckets } from "./local_buckets.js";
import { type ClientOptions, type ResolvedOptions, resolveOptions } from "./options.js";
import type { CheckCall, CheckProtocol, ReservationProtocol, ReserveAnswer, Settlement } from "./protocol.js";
import { EnvoyProtocol } from "./protocol_envoy.js";
import { TollgateProtocol } from "./protocol_tollgate.js";
import { Reservation, validateExpiry, validateId } from "./reservation.js";
import { Telemetry } from "./telemetry.js";

/** Options of a check or a peek. */
export interface CheckOptions {
  /** The domain of the rules. Default: the client's. */
  readonly domain?: string;
  /** How many hits: a whole number from 0 to 2^53 - 1. Default: 1. */
  readonly hits?: number;
  /** Cancels the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
  /** Whether a check takes no hits, as a peek. It needs the protocol `tollgate`. Default: false. */
  readonly dryRun?: boolean;
}

const KNOWN_CHECK: Record<keyof CheckOptions, true> = { domain: true, hits: true, signal: true, dryRun: true };

const KNOWN_RESERVE: Record<keyof ReserveOptions, true> = {
  domain: true,
  hits: true,
  signal: true,
  reservation: true,
  expiresMs: true,
  onExpiry: true,
};

/** Options of a reservation. */
export interface ReserveOptions extends Omit<CheckOptions, "hits" | "dryRun"> {
  /** How many hits: a whole number from 0 to 2^53 - 1. Default: the rule's amount. */
  readonly hits?: number;
  /** The id, at most 256 bytes. Default: the service makes one. */
  readonly reservation?: string;
  /** Milliseconds until it ends by itself, from 1 to 86,400,000. Default: the rule's, else 60,000. */
  readonly expiresMs?: number;
  /** Whether the hits stay charged when it expires. Default: the rule's, else `charge`. */
  readonly onExpiry?: "charge" | "release";
}

/**
 * A client of the tollgate rate limit service.
 *
 * Use one client for the whole program, and close it at the end. Its methods reject with a `TypeError` or a
 * `RangeError` if an argument can never be right, with a `ClosedError` after `close`, and with the signal's
 * reason if the caller cancels.
 */
export class Client {
  readonly #options: ResolvedOptions;
  readonly #connections: Connections;
  readonly #checks: CheckProtocol;
  readonly #reservations: ReservationProtocol | undefined;
  readonly #breaker: Breaker;
  readonly #denials: DenialCache;
  readonly #buckets: LocalBuckets;
  readonly #failures: FailureLog;
  readonly #telemetry = new Telemetry();
  /** @internal */
  readonly leases: Leases | undefined;
  #closed = false;
  #closing = Promise.resolve();

  /** Makes a client. It connects with `ready` or its first call. Throws if an option cannot be right. */
  constructor(options: ClientOptions = {}) {
    this.#options = resolveOptions(options);
    const { clock } = this.#options;
    this.#connections = new Connections(this.#options);
    const { protocol, batching } = this.#options;
    const tollgate = protocol === "tollgate" ? new TollgateProtocol(this.#connections, batching) : undefined;
    this.#checks = tollgate ?? new EnvoyProtocol(this.#connections);
    this.#reservations = tollgate;
    this.#breaker = new Breaker(this.#options.breakerFailures, this.#options.breakerOpenMs, clock);
    this.#failures = new FailureLog(this.#options);
    this.#denials = new DenialCache(this.#options.denialCacheEntries, clock);
    this.#buckets = new LocalBuckets(this.#options.localPerSecond, this.#options.localBurst, clock);
    if (tollgate === undefined) return;
    this.leases = new Leases({
      protocol: tollgate,
      clock,
      breaker: this.#breaker,
      guarded: (make) => this.#withBreaker(make),
      limits: (leastMs) => this.#limits(undefined, leastMs),
    });
  }

  /** The number of refusals in the denial cache. */
  get denialCacheSize(): number {
    return this.#denials.size;
  }

  /** Takes hits from the limits of the descriptors, or refuses. Without an answer, `onError` decides. */
  async check(descriptors: readonly DescriptorLike[], options: CheckOptions = {}): Promise<Decision> {
    requireKnown("options", options, KNOWN_CHECK);
    return this.#check(descriptors, options, this.#options.leases === true);
  }

  /** The check of a middleware. @internal */
  checkRequest(descriptors: readonly DescriptorLike[], options: CheckOptions): Promise<Decision> {
    return this.#check(descriptors, options, this.#options.leases !== false);
  }

  async #check(descriptors: readonly DescriptorLike[], options: CheckOptions, mayLease: boolean): Promise<Decision> {
    const startedAt = performance.now();
    const call = this.#checkCall(descriptors, options);
    if (options.dryRun && this.#reservations === undefined) {
      throw new TypeError("The protocol envoy has no dry run. Use tollgate.");
    }
    const traced = this.#telemetry.start("check", call.domain);
    try {
      const checked = this.#checked(call, options, mayLease);
      const verdict = checked instanceof Promise ? await checked : checked;
      this.#validateDomain(call, verdict);
      const decision = Object.assign(verdict, { elapsedMs: performance.now() - startedAt });
      traced.decided(decision);
      this.#telemetry.count(decision.allowed, decision.source);
      this.#telemetry.recordCheck(decision.elapsedMs, decision.source);
      return decision;
    } catch (error) {
      traced.failed(error);
      throw error;
    }
  }

  /** Says what a check would answer, and takes nothing. Rejects with a `CallError` without an answer. */
  async peek(descriptors: readonly DescriptorLike[], options: CheckOptions = {}): Promise<Decision> {
    const startedAt = performance.now();
    requireKnown("options", options, KNOWN_CHECK);
    const call = this.#checkCall(descriptors, options);
    const traced = this.#telemetry.start("peek", call.domain);
    try {
      const limits = this.#limits(options.signal);
      const verdict = await this.#withBreaker(() => sentTwice(() => this.#checks.peek(call, limits)));
      this.#validateDomain(call, verdict);
      const decision = { ...verdict, elapsedMs: performance.now() - startedAt };
      traced.decided(decision);
      return decision;
    } catch (error) {
      traced.failed(error);
      throw error;
    }
  }

  /**
   * Takes hits until they are settled or expire: from all limits, or from none.
   *
   * Without an answer, `onError` decides. `withReservation` also settles it. The protocol `envoy` has no
   * reservations: a `TypeError`.
   */
  async reserve(descriptors: readonly DescriptorLike[], options: ReserveOptions = {}): Promise<Reservation> {
    const startedAt = performance.now();
    const protocol = this.#reservations;
    if (protocol === undefined) throw new TypeError("The protocol envoy has no reservations. Use tollgate.");
    requireKnown("options", options, KNOWN_RESERVE);
    const { reservation, expiresMs, onExpiry } = options;
    if (reservation !== undefined) validateId(reservation);
    if (expiresMs !== undefined) validateExpiry(expiresMs);
    const call = { ...this.#checkCall(descriptors, options), reservation, expiresMs, onExpiry };
    const traced = this.#telemetry.start("reserve", call.domain);
    try {
      const limits = this.#limits(options.signal);
      const answer = await this.#orOnError(
        call,
        () => this.#withBreaker(() => protocol.reserve(call, limits)),
        (verdict): ReserveAnswer => ({ verdict, reservation: undefined, hits: 0, expiresMs: undefined }),
      );
      this.#validateDomain(call, answer.verdict);
      const decision = { ...answer.verdict, elapsedMs: performance.now() - startedAt };
      traced.decided(decision);
      this.#telemetry.count(decision.allowed, decision.source);
      return new Reservation(decision, answer, (name, settle, signal) =>
        this.#settle(name, call.domain, signal, (settleLimits) =>
          settle(protocol, { domain: call.domain, descriptors: call.descriptors }, settleLimits),
        ),
      );
    } catch (error) {
      traced.failed(error);
      throw error;
    }
  }

  /**
   * Reserves, runs the function, and releases the reservation if the function did not commit it.
   *
   * The function runs also if the reservation is refused: look at `reservation.allowed`.
   */
  async withReservation<T>(
    descriptors: readonly DescriptorLike[],
    options: ReserveOptions,
    use: (reservation: Reservation) => T | Promise<T>,
  ): Promise<T> {
    const reservation = await this.reserve(descriptors, options);
    try {
      return await use(reservation);
    } finally {
      await reservation[Symbol.asyncDispose]();
    }
  }

  /**
   * Connects, and waits until an address is connected, at most `timeoutMs`. Returns whether one is.
   *
   * A program that calls it at its start spares its first check the time of the connection.
   */
  async ready(timeoutMs = 5_000): Promise<boolean> {
    if (this.#closed) throw new ClosedError();
    return this.#connections.ready(timeoutMs);
  }

  /**
   * Gives back the hits of leases, within the deadline of a call, and closes the connections.
   *
   * Calls in flight end by their deadline. Closing twice does nothing.
   */
  close(): Promise<void> {
    if (this.#closed) return this.#closing;
    this.#closed = true;
    this.#checks.close();
    this.#denials.clear();
    this.#buckets.clear();
    const closed = (): void => {
      this.#connections.close();
    };
    if (this.leases === undefined || this.leases.size === 0) closed();
    else this.#closing = this.leases.close().finally(closed);
    return this.#closing;
  }

  /** Closes the client: `using client = new Client()`. */
  [Symbol.dispose](): void {
    void this.close();
  }

  /** Closes the client, and waits for it: `await using client = new Client()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The call, checked for mistakes. */
  #checkCall(descriptors: readonly DescriptorLike[], options: CheckOptions): CheckCall {
    if (this.#closed) throw new ClosedError();
    const domain = options.domain ?? this.#options.domain;
    if (domain === undefined || domain === "") {
      throw new TypeError("domain: set it in the options of the client or of the call");
    }
    if (options.hits !== undefined) validateHits(options.hits);
    if (options.signal?.aborted) throw abortReason(options.signal);
    return { domain, descriptors: toDescriptors(descriptors), hits: options.hits };
  }

  /** Throws if no rules have the domain, and that is an error. */
  #validateDomain({ domain }: CheckCall, verdict: Verdict): void {
    if (verdict.noLimit !== "unknown_domain" || this.#options.unknownDomain !== "error") return;
    throw new TypeError(`no rules have the domain "${domain}"; add rules for it, or correct the domain`);
  }

  /** The verdict, at once where leased hits or the denial cache have it. */
  #checked(call: CheckCall, { signal, dryRun }: CheckOptions, mayLease: boolean): Verdict | Promise<Verdict> {
    const key = checkKey(call.domain, call.descriptors);
    const leases = mayLease && !dryRun ? this.leases : undefined;
    const hits = leases === undefined ? 0 : Leases.hitsOf(call);
    const refusal = key === undefined ? undefined : this.#denials.find(key, call);
    if (refusal !== undefined) {
      if (key !== undefined && hits > 0) leases?.refuse(key, hits);
      return refusal;
    }
    const leased = key === undefined || hits === 0 ? undefined : leases?.decide(key, call, hits);
    if (leased !== undefined && !(leased instanceof LeaseCall)) return leased;
    const limits = this.#limits(signal);
    const send = dryRun
      ? () => sentTwice(() => this.#checks.peek(call, limits))
      : () => this.#checks.check(call, limits);
    return this.#orOnError(
      call,
      async () => {
        const outcome = leased && (await unlessAborted(leased.outcome, signal));
        const decided = leased && outcome && leases?.decideAfter(leased, outcome, hits);
        return this.#remembered(key, call, decided ?? (await this.#withBreaker(send)));
      },
      (verdict) => verdict,
    );
  }

  #remembered(key: string | undefined, call: CheckCall, verdict: Verdict): Verdict {
    if (!verdict.allowed && key !== undefined && !this.#closed) this.#denials.remember(key, call, verdict);
    return verdict;
  }

  /** Makes the call if the breaker permits it, and counts its outcome. */
  async #withBreaker<T>(make: () => Promise<T>): Promise<T> {
    const permit = this.#breaker.acquire();
    if (permit === undefined) throw breakerOpen();
    try {
      const answer = await make();
      this.#breaker.record(permit, "answer");
      return answer;
    } catch (error) {
      this.#recordError(permit, error);
      throw error;
    }
  }

  #recordError(permit: Permit, error: unknown): void {
    if (!(error instanceof CallError)) this.#breaker.record(permit, "cancelled");
    else this.#breaker.record(permit, isServiceFailure(error) ? error : "answer");
  }

  /** The answer of the call; without one, what `onError` decides. */
  async #orOnError<T>(call: CheckCall, make: () => Promise<T>, decided: (verdict: Verdict) => T): Promise<T> {
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      return decided(this.#onError(call, error));
    }
  }

  #onError(call: CheckCall, error: CallError): Verdict {
    const cause = error.code === "BREAKER_OPEN" ? this.#breaker.cause : error;
    if (!this.#closed && cause !== undefined) this.#failures.decided(cause);
    const source = this.#options.onError;
    if (source !== "local") return { allowed: source === "allow", source, limits: [], error };
    const tokens = Math.max(0, ...effectiveHits(call.descriptors, call.hits));
    const key = identity(call.domain, call.descriptors);
    return { ...this.#buckets.take(key, tokens), source, limits: [], error };
  }

  async #settle(
    name: string,
    domain: string,
    signal: AbortSignal | undefined,
    make: (limits: CallLimits) => Promise<Settlement>,
  ): Promise<Settlement> {
    if (this.#closed) throw new ClosedError();
    if (signal?.aborted) throw abortReason(signal);
    const traced = this.#telemetry.start(name, domain);
    try {
      const limits = this.#limits(signal);
      const settlement = await sentTwice(() => make(limits));
      traced.settled();
      return settlement;
    } catch (error) {
      traced.failed(error);
      throw error;
    }
  }

  #limits(signal: AbortSignal | undefined, leastMs = 0): CallLimits {
    return { deadline: performance.now() + Math.max(this.#options.deadlineMs, leastMs), signal };
  }
}

/** What the promise resolves to. Rejects with the signal's reason once that is aborted. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      reject(abortReason(signal));
    };
    signal.addEventListener("abort", abort, { once: true });
    void promise.then((value) => {
      signal.removeEventListener("abort", abort);
      resolve(value);
    });
  });
}

/** Makes the call, and once more after `UNAVAILABLE`. Only for calls that may be repeated. */
async function sentTwice<T>(make: () => Promise<T>): Promise<T> {
  try {
    return await make();
  } catch (error) {
    if (!(error instanceof CallError) || error.code !== "UNAVAILABLE") throw error;
    return make();
  }
}
