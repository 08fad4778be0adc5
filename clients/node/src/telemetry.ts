import { createRequire } from "node:module";

import type * as otel from "@opentelemetry/api";

import type { Decision, DecisionSource } from "./decision.js";

type Api = typeof otel;

const SCOPE = "tollgate-limits";

/** A call that is being traced. */
export interface TracedCall {
  /** Ends the span of a call that has an answer or a decision. */
  decided(decision: Pick<Decision, "allowed" | "source" | "error">): void;
  /** Ends the span of a call that has an answer without a verdict. */
  settled(): void;
  /** Ends the span of a call that failed. */
  failed(error: unknown): void;
}

const UNTRACED: TracedCall = { decided: () => undefined, settled: () => undefined, failed: () => undefined };

/** Spans and metrics by OpenTelemetry's API, if the program has it. Values of descriptors are in none of them. */
export class Telemetry {
  readonly #api: Api | undefined;
  readonly #tracer: otel.Tracer | undefined;
  readonly #decisions: otel.Counter | undefined;
  readonly #duration: otel.Histogram | undefined;

  constructor(api: Api | undefined = loadApi()) {
    this.#api = api;
    this.#tracer = api?.trace.getTracer(SCOPE);
    const meter = api?.metrics.getMeter(SCOPE);
    this.#decisions = meter?.createCounter("tollgate.client.decisions", {
      description: "Decisions on checks and reservations.",
      unit: "{decision}",
    });
    this.#duration = meter?.createHistogram("tollgate.client.duration", {
      description: "Duration of a check.",
      unit: "s",
      advice: { explicitBucketBoundaries: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1] },
    });
  }

  /** Starts the span of a call. */
  start(call: string, domain: string): TracedCall {
    const api = this.#api;
    const attributes = { "tollgate.domain": domain };
    const span = api && this.#tracer?.startSpan(`tollgate.${call}`, { kind: api.SpanKind.CLIENT, attributes });
    if (api === undefined || span === undefined) return UNTRACED;
    const fail = (error: unknown): void => {
      const message = error instanceof Error ? error.message : String(error);
      span.setStatus({ code: api.SpanStatusCode.ERROR, message });
    };
    return {
      decided: ({ allowed, source, error }) => {
        span.setAttributes({ "tollgate.source": source, "tollgate.verdict": verdict(allowed) });
        if (error !== undefined) fail(error);
        span.end();
      },
      settled: () => {
        span.setAttributes({ "tollgate.source": "server", "tollgate.verdict": verdict(true) });
        span.end();
      },
      failed: (error) => {
        fail(error);
        span.end();
      },
    };
  }

  /** Counts a decision. */
  count(allowed: boolean, source: DecisionSource): void {
    this.#decisions?.add(1, { "tollgate.source": source, "tollgate.verdict": verdict(allowed) });
  }

  /** Records the duration of a check. */
  recordCheck(elapsedMs: number, source: DecisionSource): void {
    this.#duration?.record(elapsedMs / 1_000, { "tollgate.source": source });
  }
}

function verdict(allowed: boolean): string {
  return allowed ? "ok" : "over_limit";
}

function loadApi(): Api | undefined {
  try {
    return createRequire(import.meta.url)("@opentelemetry/api") as Api;
  } catch {
    return undefined;
  }
}
