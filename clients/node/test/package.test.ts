// The package as it is published: generated code, the programs of the README, and the planted mistakes.

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";

import { Client as GrpcClient, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";

import { Tollgate } from "./support/tollgate.js";
import { PACKAGE } from "./support/vectors.js";

const folder = mkdtempSync(join(tmpdir(), "tollgate-package-"));
after(() => {
  rmSync(folder, { recursive: true });
});

const RULES = `
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: remote_address
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: budget
    rate_limit: { unit: day, requests_per_unit: 10000, algorithm: sliding_window }
`;

test("generated code is current", () => {
  const fresh = join(folder, "gen");
  execFileSync(process.execPath, [join(PACKAGE, "scripts", "generate.js"), fresh], { stdio: "inherit" });
  const current = join(PACKAGE, "src", "gen");
  const files = filesOf(fresh);
  assert.deepEqual(filesOf(current), files);
  assert.ok(files.length > 0);
  for (const file of files) {
    const message = `${file}: run npm run generate`;
    assert.equal(readFileSync(join(current, file), "utf8"), readFileSync(join(fresh, file), "utf8"), message);
  }
});

function filesOf(root: string): string[] {
  const entries = readdirSync(root, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(root.length + 1))
    .sort();
}

test("each planted mistake finds its place", () => {
  const planted = JSON.parse(readFileSync(join(PACKAGE, "planted.json"), "utf8")) as { file: string; find: string }[];
  for (const { file, find } of planted) {
    assert.equal(readFileSync(join(PACKAGE, file), "utf8").split(find).length - 1, 1, `${file}: ${find}`);
  }
});

test("the programs of the README run in a project that has only the package and its frameworks", async () => {
  const project = join(folder, "project");
  install(project);
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const programs = [...readme.matchAll(/<!-- run: (\S+) -->\s+```js\n(.*?)```/gs)].map(([, name = "", text = ""]) => {
    writeFileSync(join(project, name), text);
    return name;
  });
  assert.deepEqual(programs, ["client.mjs", "express.mjs", "fastify.mjs", "grpc.mjs"]);

  const outputs = await withTollgate(async (address) => {
    const run = start(project, "client.mjs", address, 0);
    const lines: string[] = [];
    createInterface({ input: run.stdout ?? process.stdin }).on("line", (line) => lines.push(line));
    const [code] = (await once(run, "exit")) as [number];
    assert.equal(code, 0);
    return lines;
  });
  assert.deepEqual(outputs, ["allowed", "committed 120"]);

  for (const program of ["express.mjs", "fastify.mjs"]) {
    await withProgram(project, program, async (port) => {
      const responses = [];
      for (let request = 0; request < 6; request += 1) responses.push(await fetch(`http://127.0.0.1:${String(port)}/`));
      assert.deepEqual(
        responses.map((response) => response.status),
        [200, 200, 200, 200, 200, 429],
      );
      assert.equal(await responses[0]?.text(), "hello");
      assert.equal(responses[0]?.headers.get("ratelimit-limit"), "5");
    });
  }

  await withProgram(project, "grpc.mjs", async (port) => {
    const codes = [];
    for (let call = 0; call < 6; call += 1) codes.push(await callHello(port));
    assert.deepEqual(codes, [...Array<status>(5).fill(status.OK), status.RESOURCE_EXHAUSTED]);
  });
});

/** An empty project with the package and the frameworks of the README. */
function install(project: string): void {
  const npm = (cwd: string, ...words: string[]): string =>
    execFileSync("npm", [...words, "--no-audit", "--no-fund", "--loglevel=error"], { cwd, encoding: "utf8" });
  mkdirSync(project);
  const packed = npm(PACKAGE, "pack", "--silent", "--pack-destination", folder).trim().split("\n").pop() ?? "";
  writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const { devDependencies } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as {
    devDependencies: Record<string, string>;
  };
  const frameworks = ["express", "fastify"].map((name) => `${name}@${devDependencies[name] ?? ""}`);
  npm(project, "install", "--prefer-offline", "--ignore-scripts", join(folder, packed), ...frameworks);
}

function start(project: string, program: string, address: string, port: number): ChildProcess {
  return spawn(process.execPath, [program], {
    cwd: project,
    env: { ...process.env, TOLLGATE: address, PORT: String(port) },
    stdio: ["ignore", "pipe", "inherit"],
  });
}

async function withTollgate<T>(use: (address: string) => Promise<T>): Promise<T> {
  const tollgate = await Tollgate.start(RULES);
  try {
    return await use(tollgate.address);
  } finally {
    await tollgate.stop();
  }
}

/** Runs a server of the README with a tollgate of its own. */
async function withProgram(project: string, program: string, use: (port: number) => Promise<void>): Promise<void> {
  await withTollgate(async (address) => {
    const port = await freePort();
    const server = start(project, program, address, port);
    const exit = once(server, "exit");
    try {
      const [line] = (await once(createInterface({ input: server.stdout ?? process.stdin }), "line")) as [string];
      assert.equal(line, `listening on 127.0.0.1:${String(port)}`);
      await use(port);
    } finally {
      server.kill();
      await exit;
    }
  });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

function callHello(port: number): Promise<status> {
  const bytes = (message: Buffer): Buffer => message;
  const stub = new GrpcClient(`127.0.0.1:${String(port)}`, credentials.createInsecure());
  return new Promise((resolve) => {
    const done = (error: ServiceError | null): void => {
      stub.close();
      resolve(error?.code ?? status.OK);
    };
    stub.makeUnaryRequest("/edge.Greeter/Hello", bytes, bytes, Buffer.alloc(0), new Metadata(), done);
  });
}
