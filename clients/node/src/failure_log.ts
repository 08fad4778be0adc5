import type { CallError } from "./errors.js";
import type { ResolvedOptions } from "./options.js";

const INTERVAL_MS = 60_000;
const MAX_CAUSE_LENGTH = 200;

/** Logs that `onError` decides: the first decision, and then at most one a minute. */
export class FailureLog {
  readonly #options: ResolvedOptions;
  /** Decisions since the last warning. */
  #decisions = 0;
  #warnedAt: number | undefined;

  constructor(options: ResolvedOptions) {
    this.#options = options;
  }

  /** Records a decision of `onError`, and the error of the call that made it necessary. */
  decided(cause: CallError): void {
    const { addresses, clock, logger, onError } = this.#options;
    this.#decisions += 1;
    const now = clock();
    if (this.#warnedAt !== undefined && now - this.#warnedAt < INTERVAL_MS) return;
    const fields = `addresses=${addresses.join(",")} on_error=${onError} decisions=${String(this.#decisions)}`;
    this.#decisions = 0;
    this.#warnedAt = now;
    try {
      logger.warn(`no answer from tollgate: ${fields} error=${causeText(cause.message)}`);
    } catch {
      // A logger that fails does not fail the check.
    }
  }
}

/**
 * The text on one line. It comes from the network: it is cut, and characters that end a line or control a
 * terminal are escaped.
 */
function causeText(text: string): string {
  const characters = Array.from(text);
  const kept = characters.slice(0, MAX_CAUSE_LENGTH).join("");
  const escaped = kept.replace(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return characters.length > MAX_CAUSE_LENGTH ? `${escaped}…` : escaped;
}
