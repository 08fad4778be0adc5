// The grpc-js client of tests/clients. See tests/clients/contract.md for its arguments, commands
// and results.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages are below target/, where `make deps` put them.
const require = createRequire(process.env.CLIENT_MODULES);
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const GZIP = 2; // as grpc-js numbers its compression algorithms

const options = words(process.argv.slice(2).join(" "));
const definitions = loader.loadFileDescriptorSetFromBuffer(readFileSync(options.descriptors), { keepCase: true });
const { RateLimitService } = grpc.loadPackageDefinition(definitions).envoy.service.ratelimit.v3;
const client = connect();
let stopped = false;
let cancel;
const cancelled = new Promise((resolve) => (cancel = resolve));

for await (const line of createInterface({ input: process.stdin })) {
  if (line === "stop") stopped = true;
  else if (line === "cancel") cancel();
  else run(words(line));
}

async function run(command) {
  const result = { name: command.name, answered: 0, incomplete: 0, failed: {}, first: "" };
  const request = requestOf(Number(command["value-bytes"] ?? 1));
  const calls = Number(command.calls);
  let begun = 0;
  const caller = async () => {
    while (!stopped && (calls === 0 || begun < calls)) {
      begun += 1;
      const [error, answer] = await call(command, request);
      if (error) {
        const name = grpc.status[error.code];
        result.failed[name] = (result.failed[name] ?? 0) + 1;
        result.first ||= error.message;
      } else if (complete(answer)) result.answered += 1;
      else result.incomplete += 1;
    }
  };
  await Promise.all(Array.from({ length: Number(command["at-once"]) }, caller));
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

function call(command, request) {
  const metadata = new grpc.Metadata();
  if (command["metadata-bytes"]) metadata.set("x-long", "X".repeat(Number(command["metadata-bytes"])));
  const callOptions = {};
  if (command["deadline-ms"]) callOptions.deadline = Date.now() + Number(command["deadline-ms"]);
  return new Promise((resolve) => {
    const running = client.ShouldRateLimit(request, metadata, callOptions, (...ended) => resolve(ended));
    if (command.cancel === "1") cancelled.then(() => running.cancel());
  });
}

function connect() {
  const channel = {};
  if (options.gzip === "1") channel["grpc.default_compression_algorithm"] = GZIP;
  if (options["keepalive-ms"]) {
    channel["grpc.keepalive_time_ms"] = Number(options["keepalive-ms"]);
    channel["grpc.keepalive_timeout_ms"] = 20_000;
    channel["grpc.keepalive_permit_without_calls"] = 1;
  }
  return new RateLimitService(options.address, credentials(), channel);
}

function credentials() {
  const read = (name) => (options[name] ? readFileSync(options[name]) : null);
  if (!options.ca) return grpc.credentials.createInsecure();
  return grpc.credentials.createSsl(read("ca"), read("key"), read("cert"));
}

// Three descriptors: one with a limit, one over its limit, one without a rule.
function requestOf(valueBytes) {
  const descriptor = (key, value) => ({ entries: [{ key, value }] });
  return {
    domain: "clients",
    descriptors: [descriptor("open", "v".repeat(valueBytes)), descriptor("closed", "v"), descriptor("unknown", "v")],
  };
}

// One status a descriptor, in their order: OK, OVER_LIMIT, OK.
function complete(answer) {
  return (
    answer.overall_code === 2 &&
    String(answer.statuses?.map((status) => status.code)) === "1,2,1" &&
    answer.statuses[0].current_limit?.requests_per_unit === 1_000_000_000
  );
}

function words(line) {
  return Object.fromEntries(line.split(/\s+/).filter(Boolean).map((word) => word.split(/=(.*)/s).slice(0, 2)));
}
