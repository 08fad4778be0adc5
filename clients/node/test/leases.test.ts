// Leases beyond the vectors: concurrency, bounds, rounds, and the end of a process.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import type { BatchRequest, ReturnRequest } from "../src/gen/tollgate/v1/rate_limits.js";
import { Client, descriptor } from "../src/index.js";
import { ALLOWED, type ReceivedCall, type Script, ScriptedServer } from "./support/scripted_server.js";
import { Tollgate } from "./support/tollgate.js";
import { PACKAGE } from "./support/vectors.js";

const ANN = [descriptor(["user", "ann"])];

/** Grants each lease so many hits, and allows checks. Leases are answered once `open` is true. */
class Service {
  readonly returned: ReturnRequest[] = [];
  readonly methods: string[] = [];
  open = true;

  constructor(readonly granted: bigint) {}

  readonly script = async ({ method, request }: ReceivedCall): Promise<Script> => {
    this.methods.push(method);
    if (method === "Batch") {
      for (const { call } of (request as BatchRequest).calls) {
        if (call?.$case === "giveBack") this.returned.push(call.giveBack);
      }
      return { answer: { answers: [] } };
    }
    if (method !== "Lease") return { answer: ALLOWED };
    await until(() => this.open);
    const expires = { seconds: 60n, nanos: 0 };
    return { answer: { ...ALLOWED, lease: "l", granted: this.granted, expires, notLeased: "" } };
  };
}

/** Waits until the condition holds, at most for ten seconds. */
async function until(condition: () => boolean): Promise<void> {
  const end = performance.now() + 10_000;
  while (!condition()) {
    assert.ok(performance.now() < end, "the condition did not hold in time");
    await sleep(5);
  }
}

async function leased(
  granted: bigint,
  use: (client: Client, service: Service, clock: { ms: number }) => Promise<void>,
): Promise<void> {
  const clock = { ms: 0 };
  const service = new Service(granted);
  const server = await new ScriptedServer(service.script).start();
  const options = { domain: "tests", deadlineMs: 10_000, leases: true, clock: () => clock.ms };
  const client = new Client({ ...options, addresses: server.address });
  try {
    await use(client, service, clock);
  } finally {
    await client.close();
    server.stop();
  }
}

test("checks wait for one lease, and one that is cancelled leaves the others", () =>
  leased(30n, async (client, service) => {
    await client.check(ANN);
    service.open = false;
    const caller = new AbortController();
    const cancelled = client.check(ANN, { signal: caller.signal });
    const checks = Array.from({ length: 50 }, () => client.check(ANN));
    await until(() => service.methods.includes("Lease"));
    caller.abort(new Error("gone"));
    await assert.rejects(cancelled, /gone/);
    service.open = true;
    const sources = (await Promise.all(checks)).map(({ source }) => source);
    // Those that find no hit are sent.
    assert.equal(sources.filter((source) => source === "lease").length, 30);
    assert.equal(service.methods.filter((method) => method === "Lease").length, 1);
    assert.equal(service.methods.filter((method) => method === "Check").length, 1 + 20);
  }));

test("10,000 keys are leased at most", () =>
  leased(16n, async (client, service) => {
    const check = (key: number): { domain: string; descriptors: typeof ANN; hits: undefined } => ({
      domain: "tests",
      descriptors: [descriptor(["user", String(key)])],
      hits: undefined,
    });
    for (let key = 0; key < 20_000; key += 1) client.leases?.decide(String(key), check(key), 1);
    assert.equal(client.leases?.size, 10_000);
    assert.equal(client.leases.decide("10000", check(10_000), 1), undefined);
    assert.notEqual(client.leases.decide("9999", check(9_999), 1), undefined);
    await client.leases.settled();
    assert.deepEqual(service.methods, ["Lease"]);
  }));

test("rounds give back the hits of an idle key", () =>
  leased(16n, async (client, service, clock) => {
    const listeners = process.listenerCount("beforeExit");
    await client.check(ANN);
    assert.equal(process.listenerCount("beforeExit"), listeners + 1);
    assert.equal((await client.check(ANN)).source, "lease");
    clock.ms += 1_000;
    await until(() => service.returned.length > 0);
    assert.deepEqual(
      service.returned.map(({ unused, admitted }) => [unused, admitted]),
      [[15n, 1n]],
    );
    assert.equal(client.leases?.size, 0);
    // Without keys there are no rounds, and nothing is to be done at the end of the process.
    assert.equal(process.listenerCount("beforeExit"), listeners);
  }));

test("a process that ends by itself gives its hits back", async () => {
  const service = new Service(16n);
  const server = await new ScriptedServer(service.script).start();
  const program = `
    import { Client } from ${JSON.stringify(join(PACKAGE, "build", "src", "index.js"))};
    const options = { addresses: process.argv[1], domain: "tests", deadlineMs: 10_000, leases: true, clock: () => 0 };
    const client = new Client(options);
    await client.check([{ user: "ann" }]);
    console.log((await client.check([{ user: "ann" }])).source);
  `;
  try {
    const arguments_ = ["--input-type=module", "-e", program, server.address];
    const { stdout } = await promisify(execFile)(process.execPath, arguments_, { timeout: 30_000 });
    assert.equal(stdout, "lease\n");
    assert.deepEqual(
      service.returned.map(({ unused, admitted }) => [unused, admitted]),
      [[15n, 1n]],
    );
  } finally {
    server.stop();
  }
});

test("clients with leases admit the limit at most, and give back the rest", async () => {
  // No lease ends before its hits are used or go back.
  const tollgate = await Tollgate.start(undefined, ["--lease-age-max-ms", "60000"]);
  const hundred = [descriptor(["hundred", "leased"])];
  const options = { addresses: tollgate.address, domain: "tests", deadlineMs: 10_000, clock: () => 0 };
  const clients = [1, 2].map(() => new Client({ ...options, leases: true }));
  try {
    const decisions = await Promise.all(
      clients.map(async (client) => {
        const made = [];
        for (let count = 0; count < 100; count += 1) made.push(await client.check(hundred));
        return made;
      }),
    );
    await Promise.all(clients.map((client) => client.close()));
    const allowed = decisions.flat().filter((decision) => decision.allowed);
    assert.ok(allowed.some(({ source }) => source === "lease"));
    using client = new Client(options);
    assert.equal((await client.peek(hundred)).remaining, 100 - allowed.length);
  } finally {
    await tollgate.stop();
  }
});
