// Sequences of calls on a scripted server, as vectors/sequences.json and leases.json have them.

import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server } from "node:net";
import { test } from "node:test";

import { status } from "@grpc/grpc-js";

import { type ClientOptions, Client, type Descriptor, CallError, type Reservation } from "../../src/index.js";
import { durationOf } from "../../src/duration.js";
import { RateLimitResponse_Code as Code, RateLimitResponse_RateLimit_Unit as Unit } from "../../src/gen/rls.js";
import { type BatchRequest, type Call, OnExpiry, Verdict } from "../../src/gen/tollgate/v1/rate_limits.js";
import { camelCased } from "../support/names.js";
import { type ReceivedCall, type Script, ScriptedServer } from "../support/scripted_server.js";
import { readCases } from "../support/vectors.js";

type Fields = Record<string, unknown>;

interface Step {
  do:
    | "ready"
    | "stop"
    | "advance"
    | "check"
    | "peek"
    | "reserve"
    | "commit"
    | "release"
    | "extend"
    | "end_scope"
    | "tick"
    | "close";
  ms?: number;
  descriptors?: { entries: [string, string][]; hits?: number }[];
  hits?: number | number[];
  dry_run?: boolean;
  middleware?: boolean;
  repeat?: number;
  expires_ms?: number;
  on_expiry?: "charge" | "release";
  reservation?: string;
  server?: Fields | Fields[];
  expect?: Fields;
}

interface Case {
  options: Fields;
  proxy?: boolean;
  address?: string;
  listener?: "http1";
  invalid?: boolean;
  steps: Step[];
}

const cases = [...readCases<Case>("sequences.json"), ...readCases<Case>("leases.json")];

for (const { name, options, proxy, address, listener, invalid, steps } of cases) {
  for (const batching of options.protocol === "envoy" ? [false] : [false, true]) {
    test(`sequences: ${name}${batching ? ", batched" : ""}`, async () => {
      const server = await new ScriptedServer().start();
      const clock = { ms: 0 };
      const http1 = listener === "http1" ? await startHttp1() : undefined;
      const addresses = address ?? http1?.address ?? server.address;
      const warnings: string[] = [];
      const logger = { warn: (message: string) => void warnings.push(message) };
      const fixed = { addresses, clock: () => clock.ms, batching, logger };
      if (proxy) nameProxy();
      if (invalid) {
        assert.throws(() => new Client({ ...optionsOf(options), ...fixed }), TypeError);
        server.stop();
        return;
      }
      const client = new Client({ ...optionsOf(options), ...fixed });
      if (client.leases !== undefined) client.leases.schedule = undefined;
      const takeWarning = (): Fields | null => warningOf(warnings.splice(0), addresses);
      try {
        await new Sequence(server, client, clock, takeWarning, name.startsWith("leases:")).run(steps);
      } finally {
        void client.close();
        server.stop();
        http1?.listener.close();
      }
    });
  }
}

test("a proxy of the environment is an option", async () => {
  const server = await new ScriptedServer().start();
  nameProxy();
  const client = new Client({ addresses: server.address, domain: "vectors", httpProxy: true });
  try {
    const decision = await client.check([{ entries: [["user", "ann"]] }]);
    assert.ok(decision.error);
    assert.deepEqual(server.calls, []);
  } finally {
    client.close();
    server.stop();
  }
});

/** Starts a listener that answers as a server of HTTP/1 answers HTTP/2. */
async function startHttp1(): Promise<{ listener: Server; address: string }> {
  const listener = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
  });
  await once(listener.listen(0, "127.0.0.1"), "listening");
  return { listener, address: `127.0.0.1:${String((listener.address() as AddressInfo).port)}` };
}

/** The fields of the one warning; null without one. */
function warningOf(warnings: string[], address: string): Fields | null {
  if (warnings.length === 0) return null;
  assert.equal(warnings.length, 1, warnings.join("\n"));
  const form = /^no answer from tollgate: addresses=(\S+) on_error=(\S+) decisions=(\d+) error=((\w+).*)$/;
  const [, addresses, onError, decisions, text, error] = form.exec(warnings[0] ?? "") ?? [];
  assert.equal(addresses, address, warnings[0]);
  return { on_error: onError, decisions: Number(decisions), error, text };
}

/** Names a proxy that takes no connection in the environment. It stays there: it is off by default. */
function nameProxy(): void {
  for (const scheme of ["http", "https", "grpc", "all"]) process.env[`${scheme}_proxy`] = "http://127.0.0.1:1";
  for (const name of ["no_proxy", "no_grpc_proxy"]) process.env[name] = "";
}

class Sequence {
  #reservation: Reservation | undefined;

  constructor(
    readonly server: ScriptedServer,
    readonly client: Client,
    readonly clock: { ms: number },
    readonly takeWarning: () => Fields | null,
    readonly isOfLeases: boolean,
  ) {}

  async run(steps: Step[]): Promise<void> {
    for (const [index, step] of steps.entries()) {
      if (step.do === "advance") {
        this.clock.ms += step.ms ?? 0;
        continue;
      }
      if (step.do === "stop") {
        this.server.stop();
        continue;
      }
      for (let time = 0; time < (step.repeat ?? 1); time += 1) {
        await this.#step(step, `step ${String(index)}, time ${String(time)}`);
      }
    }
  }

  async #step(step: Step, where: string): Promise<void> {
    const scripts = step.server === undefined ? [] : [step.server].flat();
    const before = this.server.calls.length;
    this.server.script = (call) => {
      const { advance_ms: ms = 0, ...script } = (scripts.length > 1 ? scripts.shift() : scripts[0]) ?? {};
      this.clock.ms += ms as number;
      return "batch" in script ? batchOf(script.batch as Fields, call) : scriptOf(script);
    };
    const { calls, request, fails, message, warning, ...expected } = step.expect ?? {};
    const result = await this.#call(step).catch((error: unknown) => ({
      fails: failureOf(error),
      message: String(error),
    }));
    await this.client.leases?.settled();
    assert.equal((result as Fields | undefined)?.fails, fails, where);
    if (typeof message === "string")
      assert.ok(String((result as { message?: string }).message).includes(message), where);
    const logged = this.takeWarning();
    if (warning === null) assert.equal(logged, null, `${where}: warning`);
    else compare(logged ?? {}, (warning ?? {}) as Fields, `${where}: warning`);
    const received = this.server.calls.slice(before);
    if (calls !== undefined) assert.equal(received.length, calls, `${where}: calls`);
    if (request !== undefined) compare(requestOf(received.at(-1)), request as Fields, `${where}: request`);
    const shown = this.isOfLeases ? likeLimits(resultOf(result), expected.limits) : resultOf(result);
    compare(shown, camelCased(expected), where);
  }

  async #call(step: Step): Promise<object | undefined> {
    const descriptors = (step.descriptors ?? []) as Descriptor[];
    const hits = step.hits === undefined ? {} : { hits: step.hits as number };
    switch (step.do) {
      case "ready":
        return { ready: await this.client.ready(step.ms) };
      case "check":
        return step.middleware
          ? this.client.checkRequest(descriptors, { ...hits, dryRun: step.dry_run ?? false })
          : this.client.check(descriptors, { ...hits, dryRun: step.dry_run ?? false });
      case "tick":
        this.client.leases?.round();
        return undefined;
      case "close":
        await this.client.close();
        return undefined;
      case "peek":
        return this.client.peek(descriptors, hits);
      case "reserve":
        this.#reservation = await this.client.reserve(descriptors, {
          ...hits,
          ...(step.reservation !== undefined && { reservation: step.reservation }),
          ...(step.expires_ms !== undefined && { expiresMs: step.expires_ms }),
          ...(step.on_expiry !== undefined && { onExpiry: step.on_expiry }),
        });
        return { ...this.#reservation.decision, reservation: this.#reservation.id, hits: this.#reservation.hits };
      case "commit":
        return this.#kept().commit(step.hits ?? 0);
      case "release":
        return this.#kept().release();
      case "extend":
        return this.#kept().extend(step.expires_ms ?? 0);
      case "end_scope":
        await this.#kept()[Symbol.asyncDispose]();
        return undefined;
      default:
        throw new Error(`the step ${step.do} is not known`);
    }
  }

  #kept(): Reservation {
    assert.ok(this.#reservation);
    return this.#reservation;
  }
}

/** The result with those fields of its limits that are expected. */
function likeLimits(result: Fields, expected: unknown): Fields {
  if (!Array.isArray(result.limits) || !Array.isArray(expected)) return result;
  const limits = (result.limits as Fields[]).map((limit, index) => {
    const known = camelCased(expected[index] ?? {});
    return Object.fromEntries(Object.entries(limit).filter(([name]) => name in known));
  });
  return { ...result, limits };
}

/** Compares the fields that are expected; null means absent. The calls of a batch have any order. */
function compare(actual: Fields, expected: Fields, where: string): void {
  for (const [field, value] of Object.entries(expected)) {
    if (field === "calls") {
      assert.deepEqual(inOrder(actual[field]), inOrder(value), `${where}: ${field}`);
      continue;
    }
    assert.deepEqual(withoutAbsent(actual[field]), withoutAbsent(value), `${where}: ${field}`);
  }
}

function inOrder(calls: unknown): unknown[] {
  const order = (call: unknown): string => JSON.stringify(Object.entries(call as Fields).sort());
  return (withoutAbsent(calls) as unknown[]).sort((one, other) => order(one).localeCompare(order(other)));
}

function withoutAbsent(value: unknown): unknown {
  if (value === null) return undefined;
  if (Array.isArray(value)) return value.map(withoutAbsent);
  if (typeof value !== "object") return value;
  const fields = Object.entries(value).filter(([, field]) => field !== null && field !== undefined);
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutAbsent(field)]));
}

function failureOf(error: unknown): string {
  if (error instanceof CallError) return error.code === "BREAKER_OPEN" ? "breaker" : error.code;
  if (error instanceof TypeError || error instanceof RangeError) return "argument";
  throw error;
}

function resultOf(result: object | undefined): Fields {
  const fields = (result ?? {}) as Fields;
  return { ...fields, error: fields.error === undefined ? undefined : failureOf(fields.error) };
}

function optionsOf({ leases, ...options }: Fields): ClientOptions {
  const on = leases === undefined ? {} : { leases: leases === "on" };
  return { domain: "vectors", deadlineMs: 2_000, ...camelCased(options), ...on };
}

/** The answer to a batch: each lease in it is answered alike, and each return by all of its hits. */
function batchOf(answer: Fields, { request }: ReceivedCall): Script {
  const made = Object.keys(answer).length === 0 ? undefined : scriptOf(answer);
  const answers = (request as BatchRequest).calls.map(({ tag, call }) => {
    if (call?.$case === "giveBack") {
      return { tag, answer: { $case: "giveBack", giveBack: { returned: call.giveBack.unused } } };
    }
    if (made === undefined) return { tag, answer: undefined };
    if ("answer" in made) return { tag, answer: { $case: "lease", lease: made.answer } };
    assert.ok("error" in made);
    return { tag, answer: { $case: "failure", failure: { code: status[made.error], message: "", details: [] } } };
  });
  return { answer: { answers } };
}

/** What the server does, from the names of the vectors to those of the messages. */
function scriptOf(script: Fields): Script {
  assert.ok(Object.keys(script).length > 0, "a call that the step does not expect");
  if ("error" in script || "hang" in script) return script as Script;
  if ("envoy" in script) return { answer: envoyAnswer(camelCased(script.envoy)) };
  const answer = camelCased(script.check ?? script.reserve ?? script.settle ?? script.lease);
  return {
    answer: {
      reservation: "",
      hits: 0n,
      reserved: 0n,
      committed: 0n,
      repeated: false,
      noLimit: "",
      lease: "",
      granted: 0n,
      notLeased: "",
      ...wireFields(answer),
      limits: ((answer.limits ?? []) as Fields[]).map((limit) => ({ name: "", rule: "", ...wireFields(limit) })),
    },
  };
}

function wireFields(fields: Fields): Fields {
  const verdicts: Fields = { VERDICT_OK: Verdict.OK, VERDICT_OVER_LIMIT: Verdict.OVER_LIMIT };
  const large = new Set(["remaining", "requestsPerUnit", "hits", "reserved", "committed", "granted"]);
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => {
      if (name.endsWith("Ms")) return [name.slice(0, -2), durationOf(value as number)];
      if (name === "verdict") return [name, verdicts[value as string] ?? Verdict.UNSPECIFIED];
      return [name, large.has(name) ? BigInt(value as number) : value];
    }),
  );
}

function envoyAnswer(answer: Fields): Fields {
  const statuses = (answer.statuses as Fields[]).map((status) => {
    const limit = status.currentLimit as Fields | undefined;
    const until = status.durationUntilResetMs as number | undefined;
    return {
      code: Code[status.code as keyof typeof Code],
      limitRemaining: status.limitRemaining,
      durationUntilReset: until === undefined ? undefined : durationOf(until),
      currentLimit: limit && { name: "", ...limit, unit: Unit[limit.unit as keyof typeof Unit] },
    };
  });
  return { overallCode: Code[answer.overallCode as keyof typeof Code], statuses };
}

/** What the server got, in the names of the vectors. */
function requestOf(call: ReceivedCall | undefined): Fields {
  assert.ok(call, "the server got no call");
  const request = call.request as Fields;
  if (call.method === "Batch") return { method: "Batch", calls: (call.request as BatchRequest).calls.map(batchedOf) };
  const expires = request.expires as { seconds: bigint; nanos: number } | undefined;
  return {
    method: call.method,
    domain: request.domain,
    descriptors: (request.descriptors as Fields[]).map((descriptor) => ({
      entries: (descriptor.entries as { key: string; value: string }[]).map(({ key, value }) => [key, value]),
      hits: number(descriptor.hits ?? descriptor.hitsAddend),
    })),
    hits: number(request.hits) ?? present(request.hitsAddend),
    reservation: present(request.reservation),
    lease: present(request.lease),
    admitted: number(request.admitted),
    refused: number(request.refused),
    expires_ms: expires && Number(expires.seconds) * 1_000 + expires.nanos / 1_000_000,
    on_expiry: request.onExpiry ? `ON_EXPIRY_${OnExpiry[request.onExpiry as number] ?? ""}` : undefined,
  };
}

/** A call of a batch, whole. */
function batchedOf({ call }: Call): Fields {
  if (call?.$case === "lease") return requestOf({ method: "Lease", request: call.lease });
  assert.ok(call?.$case === "giveBack");
  return {
    ...requestOf({ method: "Return", request: call.giveBack }),
    unused: Number(call.giveBack.unused),
  };
}

/** The value; undefined if it is the default of its type, which is not sent. */
function present(value: unknown): unknown {
  return value === "" || value === 0 ? undefined : value;
}

function number(value: unknown): number | undefined {
  return value === undefined ? undefined : Number(value);
}
