// Spans and metrics, as OpenTelemetry's SDK gets them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { metrics, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";

import { Client, descriptor } from "../src/index.js";
import { ALLOWED, REFUSED, ScriptedServer } from "./support/scripted_server.js";

test("spans and metrics of calls", async () => {
  const spans = new InMemorySpanExporter();
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
  const measured = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: 3_600_000 });
  const meters = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(meters);

  const server = await new ScriptedServer().start();
  const client = new Client({ addresses: server.address, domain: "tests", deadlineMs: 5_000 });
  const secret = [descriptor(["user", "a-secret-value"])];
  await client.check(secret);
  server.script = () => ({ error: "UNAVAILABLE" });
  await client.check(secret);
  await assert.rejects(client.peek(secret));
  server.script = () => ({ answer: { ...ALLOWED, reservation: "r-1", hits: 1n } });
  const reservation = await client.reserve(secret);
  server.script = () => ({ answer: { reservation: "r-1", reserved: 1n, committed: 1n, repeated: false, limits: [] } });
  await reservation.extend(1_000);
  await reservation.commit(1);
  await reservation.release();
  server.script = () => ({ answer: REFUSED });
  await client.check(secret);
  await client.check(secret);
  client.close();
  server.stop();

  const finished = spans.getFinishedSpans();
  const check = { "tollgate.domain": "tests", "tollgate.source": "server", "tollgate.verdict": "ok" };
  assert.deepEqual(
    finished.map(({ name, attributes, status }) => [name, attributes, status.code]),
    [
      ["tollgate.check", check, SpanStatusCode.UNSET],
      ["tollgate.check", { ...check, "tollgate.source": "allow" }, SpanStatusCode.ERROR],
      ["tollgate.peek", { "tollgate.domain": "tests" }, SpanStatusCode.ERROR],
      ["tollgate.reserve", check, SpanStatusCode.UNSET],
      ["tollgate.extend", check, SpanStatusCode.UNSET],
      ["tollgate.commit", check, SpanStatusCode.UNSET],
      ["tollgate.release", check, SpanStatusCode.UNSET],
      ["tollgate.check", { ...check, "tollgate.verdict": "over_limit" }, SpanStatusCode.UNSET],
      [
        "tollgate.check",
        { ...check, "tollgate.source": "cache", "tollgate.verdict": "over_limit" },
        SpanStatusCode.UNSET,
      ],
    ],
  );
  assert.deepEqual(new Set(finished.map(({ kind }) => kind)), new Set([SpanKind.CLIENT]));

  await meters.forceFlush();
  const points = measured.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
  const of = (name: string): [unknown, unknown][] =>
    points
      .filter(({ descriptor }) => descriptor.name === name)
      .flatMap(({ dataPoints }) => dataPoints.map(({ attributes, value }): [unknown, unknown] => [attributes, value]));
  assert.deepEqual(of("tollgate.client.decisions"), [
    [{ "tollgate.source": "server", "tollgate.verdict": "ok" }, 2],
    [{ "tollgate.source": "allow", "tollgate.verdict": "ok" }, 1],
    [{ "tollgate.source": "server", "tollgate.verdict": "over_limit" }, 1],
    [{ "tollgate.source": "cache", "tollgate.verdict": "over_limit" }, 1],
  ]);
  const durations = of("tollgate.client.duration").map(([attributes, value]) => [
    attributes,
    (value as { count: number }).count,
  ]);
  assert.deepEqual(durations, [
    [{ "tollgate.source": "server" }, 2],
    [{ "tollgate.source": "allow" }, 1],
    [{ "tollgate.source": "cache" }, 1],
  ]);
  const shown = finished.map(({ name, attributes, status, events }) => [name, attributes, status, events]);
  assert.ok(!JSON.stringify([shown, of("tollgate.client.decisions")]).includes("a-secret-value"));
  await meters.shutdown();
});
