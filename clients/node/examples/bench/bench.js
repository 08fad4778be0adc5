// An HTTP server with routes that all answer `hello`: without a limiter, with the headers of one that are
// constants, with tollgate, and with rate-limiter-flexible on Redis. Environment:
//
// PORT      port on 127.0.0.1; default: 8000
// TOLLGATE  host:port of tollgate; default: localhost:8081
// BATCHING  1 turns batching on
// LEASES    1 turns leases on
// KEYS      number of keys, of which a request has one at random; default: 1
// REDIS     URL of Redis; default: redis://127.0.0.1:6379

import express from "express";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { createClient } from "redis";
import { Client } from "tollgate-limits";
import { tollgate } from "tollgate-limits/express";

const client = new Client({
  addresses: process.env.TOLLGATE ?? "localhost:8081",
  domain: "bench",
  denialCacheEntries: 0,
  batching: process.env.BATCHING === "1",
  leases: process.env.LEASES === "1",
});
const keys = Number(process.env.KEYS ?? 1);
const key = () => String(Math.floor(Math.random() * keys));
const redis = await createClient({ url: process.env.REDIS ?? "redis://127.0.0.1:6379" }).connect();
const peer = new RateLimiterRedis({
  storeClient: redis,
  useRedisPackage: true,
  keyPrefix: "bench",
  points: 1_000_000_000,
  duration: 86_400,
});

const constantHeaders = (_request, response, next) => {
  response.setHeader("RateLimit-Limit", "1000000000");
  response.setHeader("RateLimit-Remaining", "1000000000");
  response.setHeader("RateLimit-Reset", "86400");
  next();
};

const peerLimit = async (_request, response, next) => {
  const setHeaders = ({ remainingPoints, msBeforeNext }) => {
    response.setHeader("RateLimit-Limit", "1000000000");
    response.setHeader("RateLimit-Remaining", String(remainingPoints));
    response.setHeader("RateLimit-Reset", String(Math.ceil(msBeforeNext / 1_000)));
  };
  try {
    setHeaders(await peer.consume(key()));
  } catch (refusal) {
    if (refusal instanceof Error) throw refusal;
    setHeaders(refusal);
    response.status(429).send("Too Many Requests");
    return;
  }
  next();
};

const hello = (_request, response) => response.send("hello");
const app = express();
app.get("/bare", hello);
app.get("/headers", constantHeaders, hello);
app.get("/tollgate", tollgate({ client, descriptors: [{ key: { from: key } }] }), hello);
app.get("/peer", peerLimit, hello);

const server = app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on 127.0.0.1:${server.address().port}`);
});

process.once("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
  client.close();
  redis.destroy();
});
