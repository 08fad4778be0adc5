// The client while a real tollgate is killed, frozen and started again.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, type Decision, descriptor, type OnError } from "../src/index.js";
import { Tollgate } from "./support/tollgate.js";

const DEADLINE_MS = 250;
const LATE_MS = DEADLINE_MS + 1_000;
const WIDE = [descriptor(["wide", "a"])];

for (const [onError, batching] of [
  ["allow", false],
  ["deny", false],
  ["local", false],
  ["deny", true],
] as const) {
  test(`a killed service, onError ${onError}${batching ? ", batched" : ""}`, async () => {
    const tollgate = await Tollgate.start();
    const options = { addresses: tollgate.address, domain: "tests", deadlineMs: DEADLINE_MS, onError, batching };
    const client = new Client({ ...options, local: { perSecond: 1, burst: 3 }, breaker: { openMs: 100 } });
    try {
      const load = new Load(client);
      await load.until((decision) => decision.source === "server");
      await tollgate.kill();
      await load.until((decision) => decision.error?.code === "BREAKER_OPEN");
      if (onError === "local") await load.until((decision) => decision.source === "local" && !decision.allowed);
      await tollgate.run();
      await load.until((decision) => decision.source === "server");
      const decisions = await load.stop();
      assert.equal(decisions.filter(({ elapsedMs }) => elapsedMs > LATE_MS).length, 0);
      assertDecided(decisions, onError);
    } finally {
      client.close();
      await tollgate.stop();
    }
  });
}

/** Calls that fail are decided as `onError` says. */
function assertDecided(decisions: Decision[], onError: OnError): void {
  const failed = decisions.filter(({ error }) => error !== undefined);
  assert.ok(failed.length > 0);
  assert.deepEqual(new Set(failed.map(({ source }) => source)), new Set([onError]));
  const allowed = failed.filter((decision) => decision.allowed).length;
  if (onError === "allow") assert.equal(allowed, failed.length);
  if (onError === "deny") assert.equal(allowed, 0);
  if (onError === "local") assert.ok(allowed >= 3 && allowed < failed.length);
}

/** Eight callers that check one after the other. */
class Load {
  readonly #decisions: Decision[] = [];
  readonly #callers: Promise<void>[];
  #waiting: { wanted: (decision: Decision) => boolean; resolve: () => void } | undefined;
  #stopped = false;

  constructor(client: Client) {
    this.#callers = Array.from({ length: 8 }, () => this.#call(client));
  }

  /** Waits for a decision that begins from now on. */
  until(wanted: (decision: Decision) => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting = { wanted, resolve };
    });
  }

  async stop(): Promise<Decision[]> {
    this.#stopped = true;
    await Promise.all(this.#callers);
    return this.#decisions;
  }

  async #call(client: Client): Promise<void> {
    while (!this.#stopped) {
      const decision = await client.check(WIDE);
      this.#decisions.push(decision);
      if (this.#waiting?.wanted(decision)) this.#waiting.resolve();
      // Lets timers and sockets run while the breaker answers at once.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

test("a call to a frozen service ends by its deadline", async () => {
  const tollgate = await Tollgate.start();
  using client = new Client({ addresses: tollgate.address, domain: "tests", deadlineMs: DEADLINE_MS, onError: "deny" });
  try {
    assert.equal((await client.check(WIDE)).error?.code ?? "none", "none");
    await tollgate.freeze();
    const decisions = [];
    for (let call = 0; call < 3; call += 1) decisions.push(await client.check(WIDE));
    assert.deepEqual(
      decisions.map(({ error }) => error?.code),
      Array(3).fill("DEADLINE_EXCEEDED"),
    );
    assert.equal(decisions.filter(({ elapsedMs }) => elapsedMs > LATE_MS).length, 0);
    tollgate.thaw();
    for (;;) if ((await client.check(WIDE)).source === "server") break;
  } finally {
    await tollgate.stop();
  }
});

test("a service that was never there is unavailable", async () => {
  using client = new Client({ addresses: ["127.0.0.1:1", "127.0.0.1:2"], domain: "tests", deadlineMs: DEADLINE_MS });
  const decision = await client.check(WIDE);
  assert.equal(decision.source, "allow");
  assert.match(decision.error?.code ?? "", /UNAVAILABLE|DEADLINE_EXCEEDED/);
  assert.ok(decision.elapsedMs < LATE_MS);
});
