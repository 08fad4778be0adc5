// Calls on a scripted server: the denial cache, the breaker, cancellation, and the end of a client.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { DenialCache } from "../src/denial_cache.js";
import { identity } from "../src/descriptor.js";
import { CallError, Client, ClosedError, type Descriptor, descriptor } from "../src/index.js";
import { tollgate } from "../src/express.js";
import { LocalBuckets } from "../src/local_buckets.js";
import { ALLOWED, REFUSED, ScriptedServer } from "./support/scripted_server.js";
import { PACKAGE } from "./support/vectors.js";

const ANN = [descriptor(["user", "ann"])];

async function scripted(
  use: (server: ScriptedServer, client: Client, clock: { ms: number }) => Promise<void>,
  options: object = {},
): Promise<void> {
  const clock = { ms: 0 };
  const server = await new ScriptedServer().start();
  const base = { addresses: server.address, domain: "tests", deadlineMs: 10_000, clock: () => clock.ms };
  const client = new Client({ ...base, ...options });
  try {
    await use(server, client, clock);
  } finally {
    client.close();
    server.stop();
  }
}

for (const batching of [false, true]) {
  const mode = batching ? "batched" : "unary";

  test(`1,000 refused checks make one call, ${mode}`, () =>
    scripted(
      async (server, client) => {
        server.script = () => ({ answer: REFUSED });
        for (let check = 0; check < 1_000; check += 1) assert.equal((await client.check(ANN)).allowed, false);
        assert.equal(server.calls.length, 1);
      },
      { batching },
    ));

  test(`a half-open breaker lets one of 50 callers through, ${mode}`, () =>
    scripted(
      async (server, client, clock) => {
        server.script = () => ({ error: "UNAVAILABLE" });
        await client.check(ANN);
        assert.equal(server.calls.length, 1);
        clock.ms += 1_000;
        let answer = (): void => undefined;
        const answered = new Promise<void>((resolve) => (answer = resolve));
        server.script = () => answered.then(() => ({ answer: ALLOWED }));
        const checks = Array.from({ length: 50 }, () => client.check(ANN));
        const others = await Promise.race([Promise.all(checks.slice(1)), once(checks[0])]);
        assert.ok(Array.isArray(others));
        assert.deepEqual(new Set(others.map(({ error }) => error?.code)), new Set(["BREAKER_OPEN"]));
        answer();
        assert.equal((await checks[0])?.source, "server");
        assert.equal(server.calls.length, 2);
        await Promise.all(Array.from({ length: 50 }, () => client.check(ANN)));
        assert.equal(server.calls.length, 52);
      },
      { batching, breaker: { failures: 1, openMs: 1_000 } },
    ));

  test(`a cancelled check rejects with the reason, and gives the probe back, ${mode}`, () =>
    scripted(
      async (server, client, clock) => {
        server.script = () => ({ error: "UNAVAILABLE" });
        await client.check(ANN);
        clock.ms += 1_000;
        const controller = new AbortController();
        server.script = () => {
          controller.abort(new Error("the caller left"));
          return { hang: true };
        };
        await assert.rejects(client.check(ANN, { signal: controller.signal }), /the caller left/);
        server.script = () => ({ answer: ALLOWED });
        assert.equal((await client.check(ANN)).source, "server");
      },
      { batching, breaker: { failures: 1, openMs: 1_000 }, onError: "deny" },
    ));

  test(`a check after close rejects, and closing twice is fine, ${mode}`, () =>
    scripted(
      async (_server, client) => {
        await client.check(ANN);
        const reservation = batching ? undefined : await client.reserve(ANN);
        client.close();
        client.close();
        await assert.rejects(client.check(ANN), ClosedError);
        await assert.rejects(client.peek(ANN), ClosedError);
        await assert.rejects(client.reserve(ANN), ClosedError);
        if (reservation?.id !== undefined) await assert.rejects(reservation.commit(1), ClosedError);
      },
      { batching },
    ));

  test(`a check that close ends logs nothing, ${mode}`, async () => {
    const warnings: string[] = [];
    await scripted(
      async (server, client) => {
        const called = new Promise<void>((resolve) => {
          server.script = () => {
            resolve();
            return { hang: true };
          };
        });
        const check = client.check(ANN);
        await called;
        client.close();
        server.stop();
        assert.notEqual((await check).error, undefined);
      },
      { batching, logger: { warn: (message: string) => warnings.push(message) } },
    );
    assert.deepEqual(warnings, []);
  });

  test(`close leaves nothing behind: the process ends by itself, ${mode}`, () =>
    scripted(async (server) => {
      // The clock of the client stands for hours, and the keepalive of its connection for seconds.
      const program = `
        import { Client, descriptor } from ${JSON.stringify(join(PACKAGE, "build", "src", "index.js"))};
        const client = new Client({ addresses: process.argv[1], domain: "tests", deadlineMs: 600000, batching: ${String(batching)} });
        const decision = await client.check([descriptor(["user", "ann"])]);
        client.close();
        await new Promise((resolve) => setTimeout(resolve, 100));
        console.log(decision.source, process.getActiveResourcesInfo().filter((name) => /TCP|Timeout/.test(name)).length);
      `;
      const run = promisify(execFile);
      const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program, server.address], {
        timeout: 60_000,
      });
      assert.equal(stdout.trim(), "server 0");
    }));
}

async function once(promise: Promise<unknown> | undefined): Promise<undefined> {
  await promise;
  return undefined;
}

test("refused keys keep the denial cache at its bound", () =>
  scripted(
    async (server, client) => {
      server.script = () => ({ answer: REFUSED });
      for (let key = 0; key < 3_000; key += 500) {
        const keys = Array.from({ length: 500 }, (_, more) => String(key + more));
        await Promise.all(keys.map((user) => client.check([descriptor(["user", user])])));
      }
      assert.equal(client.denialCacheSize, 1_000);
      assert.equal(server.calls.length, 3_000);
    },
    { denialCacheEntries: 1_000 },
  ));

test("100,000 keys keep the denial cache and the local buckets at their bounds", () => {
  const cache = new DenialCache(10_000, () => 0);
  const buckets = new LocalBuckets(1, 1, () => 0);
  for (let key = 0; key < 100_000; key += 1) {
    const check = { descriptors: [descriptor(["user", String(key)])], hits: 1 };
    cache.remember(String(key), check, { allowed: false, source: "server", limits: [] });
    assert.equal(buckets.take(String(key), 1).allowed, true);
    assert.ok(cache.size <= 10_000 && buckets.size <= 10_000);
  }
  assert.deepEqual([cache.size, buckets.size], [10_000, 10_000]);
  assert.equal(buckets.take("99999", 1).allowed, false);
});

test("lists of descriptors that differ have different identities", () => {
  const lists: Descriptor[][] = [
    [],
    [descriptor()],
    [descriptor(), descriptor()],
    [descriptor(["a", ""])],
    [descriptor(["", "a"])],
    [descriptor(["", ""])],
    [descriptor(["a", "b"], ["c", "d"])],
    [descriptor(["a", "b"]), descriptor(["c", "d"])],
    [descriptor(["a:b", "c"])],
    [descriptor(["a", "b:c"])],
    [descriptor(["a", "1:b"])],
    [descriptor(["a", "b1:c"])],
    [descriptor(["a1:b", "c"])],
    [descriptor(["a", "b"], ["", ""])],
    [descriptor(["a", "\u{1f600}"])],
    [descriptor(["a", "\u{1f601}"])],
    [descriptor(["a\ud83d", "\ude00"])],
    [descriptor(["a", "\ud83d"], ["\ude00", ""])],
  ];
  const domains = ["", "a", "1:a", "a0:", "a1:", "\u{1f600}"];
  const identities = domains.flatMap((domain) => lists.map((list) => identity(domain, list)));
  assert.equal(new Set(identities).size, domains.length * lists.length);
  // Hits are not a part of it.
  assert.equal(identity("a", [{ entries: [["a", "b"]], hits: 5 }]), identity("a", [descriptor(["a", "b"])]));
});

test("mistakes of a call reject its promise, and are not thrown", async () => {
  const client = new Client({ domain: "tests" });
  const calls = [
    (options: object) => client.check(ANN, options),
    (options: object) => client.checkRequest(ANN, options),
    (options: object) => client.peek(ANN, options),
    (options: object) => client.reserve(ANN, options),
  ];
  for (const call of calls) {
    const rejected = call({ hits: -1, hit: 1 });
    await assert.rejects(rejected, /^(TypeError: options: unknown option hit|RangeError: hits)/);
  }
  await client.close();
  for (const call of calls) {
    const rejected = call({});
    await assert.rejects(rejected, ClosedError);
  }
});

test("a signal that is aborted before makes no call", () =>
  scripted(async (server, client) => {
    const signal = AbortSignal.abort(new Error("too late"));
    await assert.rejects(client.check(ANN, { signal }), /too late/);
    await assert.rejects(client.peek(ANN, { signal }), /too late/);
    await assert.rejects(client.reserve(ANN, { signal }), /too late/);
    assert.equal(server.calls.length, 0);
  }));

test("a cancelled call is cancelled on the server, too", () =>
  scripted(async (server, client) => {
    const controller = new AbortController();
    server.script = () => {
      controller.abort();
      return { hang: true };
    };
    await assert.rejects(client.peek(ANN, { signal: controller.signal }), { name: "AbortError" });
    while (server.cancelled === 0) await new Promise((resolve) => setImmediate(resolve));
  }));

test("an error has the message of the server", () =>
  scripted(async (server, client) => {
    server.script = () => ({ error: "INVALID_ARGUMENT" });
    await assert.rejects(client.peek(ANN), (error: unknown) => {
      assert.ok(error instanceof CallError);
      assert.equal(error.message, "INVALID_ARGUMENT: scripted");
      return true;
    });
  }));

test("a descriptor is an object of keys and values, or has entries", () =>
  scripted(async (server, client) => {
    await client.check([{ user: "ann", path: "/" }, { entries: [["2", "b"]], hits: 3 }, { entries: "text" }]);
    const { descriptors } = server.calls[0]?.request as { descriptors: object[] };
    assert.deepEqual(descriptors, [
      {
        entries: [
          { key: "user", value: "ann" },
          { key: "path", value: "/" },
        ],
        hits: undefined,
      },
      { entries: [{ key: "2", value: "b" }], hits: 3n },
      { entries: [{ key: "entries", value: "text" }], hits: undefined },
    ]);
    await assert.rejects(client.check([{ user: 5 } as never]), /^TypeError: descriptors: expected keys and values/);
    await assert.rejects(client.check(["user" as never]), /^TypeError: descriptors: expected objects, such as/);
    await assert.rejects(client.check([null as never]), TypeError);
  }));

test("arguments that can never be right fail before a call", () =>
  scripted(
    async (server, client) => {
      await assert.rejects(client.check(ANN), TypeError);
      const named = { domain: "tests" };
      await assert.rejects(client.check(ANN, { ...named, hits: 1.5 }), RangeError);
      await assert.rejects(client.check([{ entries: ANN[0]?.entries ?? [], hits: -1 }], named), RangeError);
      await assert.rejects(client.check([["user", "ann"]] as never, named), TypeError);
      await assert.rejects(client.reserve(ANN, { ...named, expiresMs: 0 }), RangeError);
      await assert.rejects(client.reserve(ANN, { ...named, reservation: "ü".repeat(129) }), RangeError);
      assert.equal(server.calls.length, 0);
    },
    { domain: undefined },
  ));

test("an unknown option is refused, wherever it is", async () => {
  const refused = (make: () => unknown, text: RegExp): void => {
    assert.throws(make, (error: Error) => error instanceof TypeError && text.test(error.message));
  };
  const unknown = (options: object) => () => new Client(options);
  refused(unknown({ address: "limits:8081" }), /^options: unknown option address; use addresses, domain, /);
  refused(unknown({ breaker: { failure: 1 } }), /^breaker: unknown option failure; use failures, openMs$/);
  refused(unknown({ local: { rate: 1 } }), /^local: unknown option rate/);
  refused(unknown({ keepalive: { time: 1 } }), /^keepalive: unknown option time/);
  refused(unknown({ tls: { caFile: "ca.pem" } }), /^tls: unknown option caFile/);
  using client = new Client({ domain: "tests" });
  const limited = (options: object) => () => tollgate({ client, descriptors: [], ...options });
  refused(limited({ skipPath: ["/healthz"] }), /^options: unknown option skipPath/);
  const entry = { key: "user", header: "x-user", fallback: "nobody" };
  refused(limited({ descriptors: [[entry]] }), /^descriptors: the entry user: unknown option fallback/);
  refused(limited({ headers: ["policy"] }), /^headers: expected any of ratelimit, /);
  await assert.rejects(client.check(ANN, { hit: 5 } as object), /^TypeError: options: unknown option hit;/);
  await assert.rejects(client.peek(ANN, { expiresMs: 5 } as object), /^TypeError: options: unknown option expiresMs;/);
  const wrong = [{ entries: [["user", "ann"]], hit: 5 }, new Map([["user", "ann"]]), null];
  for (const one of wrong) await assert.rejects(client.check([one as never]), /^TypeError: descriptors: /);
  await scripted(async (_server, reserving) => {
    const reservation = await reserving.reserve(ANN);
    const options = { hits: 5 } as object;
    await assert.rejects(reservation.commit(1, options), /unknown option hits/);
    await assert.rejects(reservation.release(options), /unknown option hits/);
    await assert.rejects(reservation.extend(1, options), /unknown option hits/);
  });
});

test("options that can never be right fail", () => {
  assert.throws(() => new Client({ addresses: "localhost" }), TypeError);
  assert.throws(() => new Client({ addresses: [] }), TypeError);
  assert.throws(() => new Client({ deadlineMs: 0 }), RangeError);
  assert.throws(() => new Client({ protocol: "http" as never }), TypeError);
  assert.throws(() => new Client({ tls: { cert: "only" } }), TypeError);
  const wrong: [unknown, string][] = [
    ["localhost:8081", "options: expected an object, got localhost:8081"],
    [{ breaker: 5 }, "breaker: expected an object, got 5"],
    [{ leases: "off" }, "leases: expected true or false, got off"],
    [{ batching: 1 }, "batching: expected true or false, got 1"],
    [{ httpProxy: "no" }, "httpProxy: expected true or false, got no"],
  ];
  for (const [options, message] of wrong) {
    assert.throws(() => new Client(options as never), { name: "TypeError", message });
  }
  new Client({ addresses: ["[::1]:8081", "host.example:1"] }).close();
});

test("a logger has a method warn, and its failure does not fail a check", async () => {
  assert.throws(() => new Client({ logger: { info: () => undefined } as never }), /logger: expected a method warn/);
  let logged = 0;
  const warn = (): void => {
    logged += 1;
    throw new Error("the disk is full");
  };
  await scripted(
    async (server, client) => {
      server.script = () => ({ error: "UNAVAILABLE" });
      assert.equal((await client.check(ANN)).source, "allow");
    },
    { logger: { warn } },
  );
  assert.equal(logged, 1);
});

test("the console gets the warning", async (context) => {
  const warn = context.mock.method(console, "warn", () => undefined);
  await scripted(async (server, client) => {
    server.script = () => ({ error: "UNAVAILABLE" });
    await client.check(ANN);
    await client.check(ANN);
    const expected = `no answer from tollgate: addresses=${server.address} on_error=allow decisions=1 error=UNAVAILABLE: scripted`;
    assert.deepEqual(
      warn.mock.calls.map((call) => call.arguments),
      [[expected]],
    );
  });
});
