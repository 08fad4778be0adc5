// The client with a real tollgate.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { CallError, Client, descriptor } from "../src/index.js";
import { Tollgate } from "./support/tollgate.js";

let tollgate: Tollgate;
let second: Tollgate;
before(async () => {
  [tollgate, second] = await Promise.all([Tollgate.start(), Tollgate.start()]);
});
after(async () => {
  await Promise.all([tollgate.stop(), second.stop()]);
});

function clientOf(options: object = {}): Client {
  return new Client({ addresses: tollgate.address, domain: "tests", deadlineMs: 10_000, ...options });
}

for (const [mode, options] of Object.entries({
  tollgate: {},
  envoy: { protocol: "envoy" },
  batched: { batching: true },
})) {
  test(`400 concurrent checks of a limit of 100: ${mode}`, async () => {
    using client = clientOf({ ...options, denialCacheEntries: 0 });
    const checks = Array.from({ length: 400 }, () => client.check([descriptor(["hundred", mode])]));
    const decisions = await Promise.all(checks);
    assert.deepEqual(new Set(decisions.map(({ source }) => source)), new Set(["server"]));
    assert.equal(decisions.filter(({ allowed }) => allowed).length, 100);
    const refused = decisions.find(({ allowed }) => !allowed);
    assert.equal(refused?.limits[0]?.requestsPerUnit, 100);
    assert.equal(refused.limits[0].window, "1 hour");
    assert.ok((refused.retryAfterMs ?? 0) > 0);
  });
}

test("an unknown domain is an error if it is configured", async () => {
  const elsewhere = { domain: "nowhere" };
  using client = clientOf();
  assert.equal((await client.check([descriptor(["hundred", "a"])], elsewhere)).noLimit, "unknown_domain");
  using strict = clientOf({ unknownDomain: "error" });
  await assert.rejects(strict.check([descriptor(["hundred", "a"])], elsewhere), TypeError);
  assert.equal((await strict.check([descriptor(["hundred", "a"])])).noLimit, undefined);
});

test("calls rotate over several addresses", async () => {
  using client = clientOf({ addresses: [tollgate.address, second.address], denialCacheEntries: 0 });
  // Both are connected when a call reaches a service with more left than the one before.
  for (let remaining = Infinity; ;) {
    const decision = await client.check([descriptor(["wide", "warm"])]);
    if ((decision.remaining ?? 0) >= remaining) break;
    remaining = decision.remaining ?? 0;
  }
  const checks = Array.from({ length: 400 }, () => client.check([descriptor(["hundred", "rotated"])]));
  const decisions = await Promise.all(checks);
  assert.equal(decisions.filter(({ allowed }) => allowed).length, 200);
});

test("an address that is not there is passed over", async () => {
  using client = clientOf({ addresses: ["127.0.0.1:1", tollgate.address] });
  const decisions = [];
  for (let call = 0; call < 20; call += 1) decisions.push(await client.check([descriptor(["wide", "a"])]));
  assert.deepEqual(new Set(decisions.map(({ source }) => source)), new Set(["server"]));
});

test("a reservation is committed, and the rest goes back", async () => {
  using client = clientOf();
  const ann = [descriptor(["budget", "ann"])];
  const reservation = await client.reserve(ann, { hits: 800, expiresMs: 60_000, reservation: "answer-1" });
  assert.equal(reservation.id, "answer-1");
  assert.equal(reservation.hits, 800);
  assert.equal((await client.peek(ann)).remaining, 9_200);
  assert.ok(((await reservation.extend(120_000)).expiresMs ?? 0) > 60_000);
  const settlement = await reservation.commit(120);
  assert.deepEqual([settlement.reserved, settlement.committed, settlement.repeated], [800, 120, false]);
  assert.equal((await reservation.commit(120)).repeated, true);
  assert.equal((await client.peek(ann)).remaining, 9_880);
});

test("a reservation is released", async () => {
  using client = clientOf();
  const bob = [descriptor(["budget", "bob"])];
  const reservation = await client.reserve(bob, { hits: 800 });
  await reservation.release();
  assert.equal((await client.peek(bob)).remaining, 10_000);
});

test("a scope commits, or releases", async () => {
  using client = clientOf();
  const carl = [descriptor(["budget", "carl"])];
  const answer = await client.withReservation(carl, { hits: 800 }, async (reservation) => {
    await reservation.commit(120);
    return "done";
  });
  assert.equal(answer, "done");
  assert.equal((await client.peek(carl)).remaining, 9_880);
  await assert.rejects(
    client.withReservation(carl, { hits: 800 }, () => {
      throw new Error("the work failed");
    }),
    /the work failed/,
  );
  assert.equal((await client.peek(carl)).remaining, 9_880);
});

test("a commit has an amount for each descriptor", async () => {
  using client = clientOf();
  const both = [descriptor(["budget", "dora"]), descriptor(["budget", "emil"])];
  const reservation = await client.reserve(both, { hits: 500 });
  await reservation.commit([100, 30]);
  assert.equal((await client.peek(both.slice(0, 1))).remaining, 9_900);
  assert.equal((await client.peek(both.slice(1))).remaining, 9_970);
});

test("a refused reservation has nothing to settle", async () => {
  using client = clientOf();
  const reservation = await client.reserve([descriptor(["budget", "fred"])], { hits: 10_001 });
  assert.equal(reservation.allowed, false);
  assert.equal(reservation.id, undefined);
  assert.equal((await reservation.commit(1)).committed, 0);
});

test("a commit of an unknown reservation fails", async () => {
  using client = clientOf();
  const reservation = await client.reserve([descriptor(["budget", "gina"])], { hits: 1, expiresMs: 1 });
  await assert.rejects(
    async () => {
      // The reservation expires within milliseconds. Until then a commit would succeed.
      for (;;) await reservation.extend(1);
    },
    (error: unknown) => error instanceof CallError && error.code === "NOT_FOUND",
  );
});
