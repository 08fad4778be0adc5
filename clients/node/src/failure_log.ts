import type { CallError } from "./errors.js";
import type { ResolvedOptions } from "./options.js";

const INTERVAL_MS = 60_000;

/** Logs that `onError` decides: the first decision, and then at most one a minute. */
export class FailureLog {
  readonly #options: ResolvedOptions;
  /** Decisions since the last warning. */
  #decisions = 0;
  #warnedAt: number | undefined;

  constructor(options: ResolvedOptions) {
    this.#options = options;
  }

  /** Records a decision of `onError`, and why it was needed. */
  decided(error: CallError): void {
    const { addresses, clock, logger, onError } = this.#options;
    this.#decisions += 1;
    const now = clock();
    // A call that the breaker stopped has no cause of its own.
    if (error.code === "BREAKER_OPEN") return;
    if (this.#warnedAt !== undefined && now - this.#warnedAt < INTERVAL_MS) return;
    const fields = `addresses=${addresses.join(",")} on_error=${onError} decisions=${String(this.#decisions)}`;
    this.#decisions = 0;
    this.#warnedAt = now;
    try {
      logger.warn(`tollgate: no answer from the service: ${fields} error=${error.message}`);
    } catch {
      // A logger that fails does not fail the check.
    }
  }
}
