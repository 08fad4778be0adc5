import type { CallError } from "./errors.js";

/** Permission for one call. */
export interface Permit {
  readonly period: number;
}

/** How a call ended: with an answer, with this failure of the service, or cancelled by the caller. */
export type Outcome = "answer" | "cancelled" | CallError;

/**
 * A circuit breaker: it opens after failures in a row, and lets one call through after a time.
 *
 * An outcome counts only in the period in which its call began. A slow call of an earlier period neither
 * opens nor closes the breaker.
 */
export class Breaker {
  readonly #failuresMax: number;
  readonly #openMs: number;
  readonly #clock: () => number;
  #state: "closed" | "open" | "probing" = "closed";
  #failures = 0;
  #openUntil = 0;
  #period = 0;
  #cause: CallError | undefined;

  constructor(failuresMax: number, openMs: number, clock: () => number) {
    this.#failuresMax = failuresMax;
    this.#openMs = openMs;
    this.#clock = clock;
  }

  /** A permit, which must be given back with `record`; or undefined if the call must not be made. */
  acquire(): Permit | undefined {
    if (this.#state === "probing") return undefined;
    if (this.#state === "open") {
      if (this.#clock() < this.#openUntil) return undefined;
      this.#enter("probing");
    }
    return { period: this.#period };
  }

  /** Whether calls need no probe. */
  get isClosed(): boolean {
    return this.#state === "closed";
  }

  /** The failure that opened the breaker last. */
  get cause(): CallError | undefined {
    return this.#cause;
  }

  /** Counts the outcome of a call. */
  record(permit: Permit, outcome: Outcome): void {
    if (permit.period !== this.#period) return;
    if (outcome === "cancelled") {
      // The next call may probe: `openUntil` has passed.
      if (this.#state === "probing") this.#enter("open");
    } else if (outcome === "answer") {
      this.#failures = 0;
      if (this.#state === "probing") this.#enter("closed");
    } else {
      this.#failures += 1;
      if (this.#state === "probing" || this.#failures >= this.#failuresMax) {
        this.#openUntil = this.#clock() + this.#openMs;
        this.#failures = 0;
        this.#cause = outcome;
        this.#enter("open");
      }
    }
  }

  #enter(state: "closed" | "open" | "probing"): void {
    this.#state = state;
    this.#period += 1;
  }
}
