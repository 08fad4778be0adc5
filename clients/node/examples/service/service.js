// An HTTP service whose requests tollgate limits. Environment:
//
// PORT         port on 127.0.0.1; default: 8000
// TOLLGATE     host:port of the service; default: localhost:8081
// ON_ERROR     allow, deny or local; default: allow
// DEADLINE_MS  deadline of a check in milliseconds; default: 100
// FRAMEWORK    express or fastify; default: express

import express from "express";
import fastify from "fastify";
import { Client } from "tollgate-limits";
import { tollgate as expressTollgate } from "tollgate-limits/express";
import { tollgate as fastifyTollgate } from "tollgate-limits/fastify";

const LATE_MS = 100;

const port = Number(process.env.PORT ?? 8000);
const deadlineMs = Number(process.env.DEADLINE_MS ?? 100);
const client = new Client({
  addresses: process.env.TOLLGATE ?? "localhost:8081",
  domain: "demo",
  onError: process.env.ON_ERROR ?? "allow",
  deadlineMs,
});

const stats = { checks: 0, late: 0, sources: { server: 0, lease: 0, cache: 0, local: 0, allow: 0, deny: 0 } };
const options = {
  client,
  descriptors: [[{ key: "generic_key", value: "demo" }]],
  skipPaths: ["/healthz", "/stats"],
  onDecision: (_request, { source, elapsedMs }) => {
    stats.checks += 1;
    stats.sources[source] += 1;
    if (elapsedMs > deadlineMs + LATE_MS) stats.late += 1;
  },
};
const routes = {
  "/": () => "hello from node",
  "/healthz": () => "ok",
  "/stats": () => ({ ...stats, handles: process.getActiveResourcesInfo().length }),
};

const frameworks = {
  express: () => {
    const app = express();
    app.use(expressTollgate(options));
    for (const [path, answer] of Object.entries(routes)) app.get(path, (_request, response) => response.send(answer()));
    return new Promise((resolve, reject) => {
      const server = app.listen(port, "127.0.0.1", (error) => (error ? reject(error) : resolve(server)));
    });
  },
  fastify: async () => {
    const app = fastify();
    await app.register(fastifyTollgate, options);
    for (const [path, answer] of Object.entries(routes)) app.get(path, async () => answer());
    await app.listen({ host: "127.0.0.1", port });
    return app.server;
  },
};

const server = await frameworks[process.env.FRAMEWORK ?? "express"]();
console.log(`listening on 127.0.0.1:${server.address().port}`);

process.once("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
  client.close();
});
