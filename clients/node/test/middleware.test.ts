// Middleware with its frameworks on real sockets, and a real tollgate.

import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";

import {
  Client as GrpcClient,
  credentials,
  type MethodDefinition,
  Metadata,
  Server,
  ServerCredentials,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import express from "express";
import fastify, { type FastifyReply, type FastifyRequest } from "fastify";

import { tollgate as expressLimit } from "../src/express.js";
import { tollgate as fastifyLimit, tollgateHook } from "../src/fastify.js";
import { type GrpcLimitOptions, tollgate as grpcLimit } from "../src/grpc.js";
import {
  type CheckOptions,
  Client,
  type Decision,
  type DescriptorLike,
  httpRefusal,
  type LimitOptions,
} from "../src/index.js";
import { Tollgate } from "./support/tollgate.js";

let tollgate: Tollgate;
let client: Client;
before(async () => {
  tollgate = await Tollgate.start();
  client = new Client({ addresses: tollgate.address, domain: "tests", deadlineMs: 10_000, denialCacheEntries: 0 });
});
after(async () => {
  client.close();
  await tollgate.stop();
});

/** An HTTP server, and what ends it. */
interface Site {
  url: string;
  close: () => Promise<void>;
}

/** Options of the handlers that write a refusal themselves. */
const REFUSAL = { headers: ["x-ratelimit"], body: "slow down" } as const;

/** A client that reports what its checks took. */
class CountingClient extends Client {
  readonly taken: Decision[] = [];
  readonly #taken = new EventEmitter();

  constructor() {
    super({ addresses: tollgate.address, domain: "tests", deadlineMs: 10_000, denialCacheEntries: 0 });
  }

  override async check(descriptors: readonly DescriptorLike[], options: CheckOptions = {}): Promise<Decision> {
    const decision = await super.check(descriptors, options);
    if (!options.dryRun) {
      this.taken.push(decision);
      this.#taken.emit("taken");
    }
    return decision;
  }

  /** Waits until so many checks took hits. Returns what the last of them left. */
  async left(count: number): Promise<number | undefined> {
    while (this.taken.length < count) await once(this.#taken, "taken");
    return this.taken.at(-1)?.remaining;
  }
}

/** Options for the requests of any framework. */
type Options = Omit<LimitOptions<{ method: string }>, "client">;

type Serve = (options: Options, by?: Client) => Promise<Site>;

const serveExpress: Serve = async (options, by = client) => {
  const app: express.Express = express();
  const api = express.Router();
  api.use(expressLimit({ client: by, ...options }));
  api.get("/hello", (request, response) => {
    response.status(Number(request.query.status ?? 200)).send("hello");
  });
  api.get("/handler", async (_request, response) => {
    const refusal = httpRefusal(await by.check([{ route: "handler" }], { hits: 6 }), REFUSAL);
    assert.ok(refusal);
    response.status(refusal.status).set(refusal.headers).send(refusal.body);
  });
  app.use("/api", api);
  app.use((error: Error, _request: express.Request, response: express.Response, next: express.NextFunction) => {
    if (response.headersSent) next(error);
    else response.status(500).send(error.message);
  });
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${String(port)}/api/hello`,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
};

const serveFastify: Serve = async (options, by = client) => {
  const app = fastify();
  await app.register(fastifyLimit, { client: by, ...options });
  app.get("/api/hello", hello);
  app.get("/api/handler", async (_request, reply) => {
    const refusal = httpRefusal(await by.check([{ route: "handler" }], { hits: 6 }), REFUSAL);
    assert.ok(refusal);
    return reply.code(refusal.status).headers(refusal.headers).send(refusal.body);
  });
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  return { url: `${url}/api/hello`, close: () => app.close() };
};

const hello = (request: FastifyRequest, reply: FastifyReply): string => {
  reply.code(Number((request.query as { status?: string }).status ?? 200));
  return "hello";
};

const serveFastifyHook: Serve = async (options, by = client) => {
  const app = fastify();
  const onRequest = tollgateHook({ client: by, ...options });
  app.get("/api/hello", { onRequest }, hello);
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  return { url: `${url}/api/hello`, close: () => app.close() };
};

test("a route of Fastify has options of its own", async () => {
  const app = fastify();
  await app.register(fastifyLimit, {
    client,
    descriptors: [{ route: "shared", tag: { header: "x-tag", default: "-" } }],
  });
  const answer = (): string => "hello";
  app.get("/shared", answer);
  app.get("/free", { config: { tollgate: false } }, answer);
  app.get("/own", { config: { tollgate: { descriptors: [{ route: "own" }], hits: 5, status: 420 } } }, answer);
  for (const wrong of [{ hit: 5 }, { headers: ["policy"] }, true]) {
    assert.throws(() => app.get("/wrong", { config: { tollgate: wrong as object } }, answer), TypeError);
  }
  const get = async (url: string): Promise<string> => {
    const { statusCode, headers } = await app.inject(url);
    return `${String(statusCode)} ${String(headers["ratelimit-remaining"])}`;
  };
  assert.equal(await get("/own"), "200 0");
  assert.equal(await get("/own"), "420 0");
  assert.equal(await get("/free"), "200 undefined");
  assert.equal(await get("/shared"), "200 undefined");
  await app.close();
});

for (const [framework, serve] of Object.entries({ serveExpress, serveFastify, serveFastifyHook })) {
  test(`${framework}: 5 requests pass, the 6th is refused`, async () => {
    const site = await serve({ descriptors: [{ route: framework }], trustedProxies: ["127.0.0.1"] });
    for (let left = 4; left >= 0; left -= 1) {
      const response = await fetch(site.url);
      assert.equal(response.status, 200);
      assert.equal(await response.text(), "hello");
      assert.equal(response.headers.get("ratelimit-limit"), "5");
      assert.equal(response.headers.get("ratelimit-remaining"), String(left));
      assert.match(response.headers.get("ratelimit-reset") ?? "", /^\d+$/);
      assert.equal(response.headers.get("retry-after"), null);
    }
    const refused = await fetch(site.url);
    assert.equal(refused.status, 429);
    assert.equal(await refused.text(), "Too Many Requests");
    assert.equal(refused.headers.get("content-type"), "text/plain; charset=utf-8");
    assert.equal(refused.headers.get("ratelimit-remaining"), "0");
    assert.match(refused.headers.get("retry-after") ?? "", /^[1-9]\d*$/);
    await site.close();
  });

  test(`${framework}: descriptors have the path as sent, headers, and the client's address`, async () => {
    const seen: unknown[] = [];
    const site = await serve({
      descriptors: [
        [
          { key: "path", path: true },
          { key: "method", method: true },
        ],
        [{ key: "tag", header: "X-Tag" }],
        [{ key: "remote_address", remoteAddress: true }],
        [{ key: "from", from: (request) => Promise.resolve(`${request.method}!`) }],
      ],
      trustedProxies: ["127.0.0.0/8"],
      hits: (request) => request.method.length - 3,
      onDecision: (request, decision) => {
        seen.push(request.method, decision.source);
        throw new Error("dropped");
      },
    });
    const headers = { "x-tag": "a", "x-forwarded-for": "203.0.113.9, 127.0.0.2" };
    const response = await fetch(`${site.url}?query`, { headers });
    assert.equal(response.status, 200);
    assert.deepEqual(seen, ["GET", "server"]);
    await site.close();
  });

  test(`${framework}: a function that fails makes the request fail`, async () => {
    const site = await serve({
      descriptors: [
        [
          {
            key: "from",
            from: () => {
              throw new Error("no user");
            },
          },
        ],
      ],
    });
    const response = await fetch(site.url);
    assert.equal(response.status, 500);
    assert.match(await response.text(), /no user/);
    await site.close();
  });

  for (const count of ["failed", "successful"] as const) {
    test(`${framework}: only ${count} requests are counted`, async () => {
      using by = new CountingClient();
      const site = await serve({ descriptors: [{ route: `${framework} ${count}` }], count }, by);
      const [counted, free] = count === "failed" ? [404, 200] : [200, 404];
      const get = async (code: number): Promise<number> => (await fetch(`${site.url}?status=${String(code)}`)).status;
      for (let left = 4; left >= 0; left -= 1) {
        assert.equal(await get(free), free);
        assert.equal(await get(counted), counted);
        assert.equal(await by.left(5 - left), left);
      }
      assert.equal(await get(free), 429);
      assert.equal(by.taken.length, 5);
      await site.close();
    });
  }

  test(`${framework}: skipped and shadowed requests pass`, async () => {
    const descriptors = [[{ key: "route", value: `${framework} skipped` }]];
    const skipped = await serve({ descriptors, skipPaths: ["/api/{name}"] });
    const shadowed = await serve({ descriptors, shadow: true });
    for (let request = 0; request < 7; request += 1) {
      for (const site of [skipped, shadowed]) {
        const response = await fetch(site.url);
        assert.equal(response.status, 200);
        assert.equal(response.headers.get("ratelimit-limit"), null);
      }
    }
    await skipped.close();
    await shadowed.close();
  });

  test(`${framework}: onError deny answers 503`, async () => {
    using denied = new Client({ addresses: "127.0.0.1:1", domain: "tests", onError: "deny", deadlineMs: 5_000 });
    const site = await serve({ descriptors: [[{ key: "route", value: "x" }]] }, denied);
    const response = await fetch(site.url);
    assert.equal(response.status, 503);
    assert.equal(await response.text(), "Service Unavailable");
    assert.equal(response.headers.get("retry-after"), "1");
    await site.close();
  });
}

const echo = { path: "/test.Echo/Unary", requestStream: false, responseStream: false } as const;
const bytes = (value: Buffer): Buffer => value;
const codec = {
  requestSerialize: bytes,
  requestDeserialize: bytes,
  responseSerialize: bytes,
  responseDeserialize: bytes,
};
const UNARY: MethodDefinition<Buffer, Buffer> = { ...echo, ...codec };
const STREAM: MethodDefinition<Buffer, Buffer> = {
  ...UNARY,
  path: "/test.Echo/Stream",
  requestStream: true,
  responseStream: true,
};

interface Ended {
  code: status;
  details: string;
  metadata: Metadata;
  initial: Metadata | undefined;
  answers: string[];
}

async function serveGrpc(
  options: Omit<GrpcLimitOptions, "client">,
  by = client,
): Promise<{ stub: GrpcClient; stop: () => void }> {
  const server = new Server({ interceptors: [grpcLimit({ client: by, ...options })] });
  server.addService(
    { unary: UNARY, stream: STREAM },
    {
      unary: (call: { request: Buffer }, respond: (error: object | null, answer?: Buffer) => void) => {
        if (call.request.toString() === "fail") respond({ code: status.NOT_FOUND });
        else respond(null, call.request);
      },
      stream: (call: NodeJS.ReadWriteStream) => {
        call.on("data", (message: Buffer) => call.write(message));
        call.on("end", () => call.end());
      },
    },
  );
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound);
      else reject(error);
    });
  });
  const stub = new GrpcClient(`127.0.0.1:${String(port)}`, credentials.createInsecure());
  return {
    stub,
    stop: () => {
      stub.close();
      server.forceShutdown();
    },
  };
}

function callUnary(stub: GrpcClient, metadata = new Metadata(), text = "hello"): Promise<Ended> {
  return new Promise((resolve) => {
    let initial: Metadata | undefined;
    let trailers = new Metadata();
    const call = stub.makeUnaryRequest(
      UNARY.path,
      bytes,
      bytes,
      Buffer.from(text),
      metadata,
      (error: ServiceError | null, answer) => {
        const answers = answer === undefined ? [] : [answer.toString()];
        const { code = status.OK, details = "" } = error ?? {};
        resolve({ code, details, metadata: error?.metadata ?? trailers, initial, answers });
      },
    );
    call.on("metadata", (received: Metadata) => (initial = received));
    call.on("status", ({ metadata: received }: { metadata: Metadata }) => (trailers = received));
  });
}

function callStream(stub: GrpcClient): Promise<Ended> {
  return new Promise((resolve) => {
    let initial: Metadata | undefined;
    const answers: string[] = [];
    const call = stub.makeBidiStreamRequest(STREAM.path, bytes, bytes, new Metadata());
    call.on("metadata", (received: Metadata) => (initial = received));
    call.on("data", (message: Buffer) => answers.push(message.toString()));
    call.on("error", () => undefined);
    call.on("status", ({ code, details, metadata }: { code: status; details: string; metadata: Metadata }) => {
      resolve({ code, details, metadata, initial, answers });
    });
    for (const word of ["a", "b", "c"]) call.write(Buffer.from(word));
    call.end();
  });
}

for (const [framework, serve] of Object.entries({ serveExpress, serveFastify })) {
  test(`${framework}: a handler writes the refusal`, async () => {
    const site = await serve({ descriptors: [] });
    const refused = await fetch(site.url.replace("hello", "handler"));
    assert.equal(refused.status, 429);
    assert.equal(await refused.text(), "slow down");
    assert.equal(refused.headers.get("x-ratelimit-limit"), "5");
    assert.equal(refused.headers.get("content-type"), "text/plain; charset=utf-8");
    await site.close();
  });
}

test("a wrong count, and a wrong option of a refusal, are refused", async () => {
  const count = "most" as "all";
  assert.throws(() => expressLimit({ client, descriptors: [], count }), TypeError);
  const decision = await client.check([{ route: "allowed" }]);
  assert.equal(httpRefusal(decision), undefined);
  assert.throws(() => httpRefusal(decision, { stauts: 403 } as object), TypeError);
});

for (const count of ["failed", "successful"] as const) {
  test(`grpc: only ${count} calls are counted`, async () => {
    using by = new CountingClient();
    const { stub, stop } = await serveGrpc({ descriptors: [{ route: `grpc ${count}` }], count }, by);
    const good = async (): Promise<status> => (await callUnary(stub)).code;
    const bad = async (): Promise<status> => (await callUnary(stub, new Metadata(), "fail")).code;
    const [counted, free] = count === "failed" ? [bad, good] : [good, bad];
    for (let left = 4; left >= 0; left -= 1) {
      assert.notEqual(await free(), status.RESOURCE_EXHAUSTED);
      assert.notEqual(await counted(), status.RESOURCE_EXHAUSTED);
      assert.equal(await by.left(5 - left), left);
    }
    assert.equal(await free(), status.RESOURCE_EXHAUSTED);
    stop();
  });
}

for (const [kind, call, answers] of [
  ["unary", callUnary, ["hello"]],
  ["stream", callStream, ["a", "b", "c"]],
] as const) {
  test(`grpc ${kind}: 5 calls pass, the 6th is RESOURCE_EXHAUSTED`, async () => {
    const { stub, stop } = await serveGrpc({ descriptors: [[{ key: "route", value: `grpc ${kind}` }]] });
    for (let left = 4; left >= 0; left -= 1) {
      const ended = await call(stub);
      assert.equal(ended.code, status.OK, ended.details);
      assert.deepEqual(ended.answers, answers);
      assert.deepEqual(ended.initial?.get("ratelimit-limit"), ["5"]);
      assert.deepEqual(ended.initial.get("ratelimit-remaining"), [String(left)]);
    }
    const refused = await call(stub);
    assert.equal(refused.code, status.RESOURCE_EXHAUSTED);
    assert.equal(refused.details, "rate limited");
    assert.deepEqual(refused.answers, []);
    assert.deepEqual(refused.metadata.get("ratelimit-remaining"), ["0"]);
    const details = refused.metadata.get("grpc-status-details-bin")[0];
    assert.ok(details instanceof Buffer);
    assert.ok(details.includes("type.googleapis.com/google.rpc.RetryInfo"));
    stop();
  });
}

test("grpc: descriptors have the method, metadata, and the client's address", async () => {
  const seen: Decision[] = [];
  const { stub, stop } = await serveGrpc({
    descriptors: [
      [
        { key: "route", path: true },
        { key: "method", method: true },
      ],
      [{ key: "remote_address", remoteAddress: true }],
      [{ key: "wide", header: "x-user" }],
    ],
    onDecision: (_call, decision) => void seen.push(decision),
  });
  const metadata = new Metadata();
  metadata.set("x-user", "ann");
  assert.equal((await callUnary(stub, metadata)).code, status.OK);
  assert.deepEqual(
    seen[0]?.limits.map(({ rule }) => rule),
    ["tests.remote_address", "tests.wide"],
  );
  stop();
});

test("grpc: a function that fails ends the call", async () => {
  const { stub, stop } = await serveGrpc({
    descriptors: [[{ key: "user", from: () => Promise.reject(new Error("no user")) }]],
  });
  const ended = await callUnary(stub);
  assert.equal(ended.code, status.UNKNOWN);
  assert.match(ended.details, /no user/);
  stop();
});

test("grpc: onError deny ends the call with UNAVAILABLE", async () => {
  using denied = new Client({ addresses: "127.0.0.1:1", domain: "tests", onError: "deny", deadlineMs: 5_000 });
  const { stub, stop } = await serveGrpc({ descriptors: [[{ key: "route", value: "x" }]] }, denied);
  const ended = await callUnary(stub);
  assert.equal(ended.code, status.UNAVAILABLE);
  assert.equal(ended.details, "rate limit service unavailable");
  stop();
});
