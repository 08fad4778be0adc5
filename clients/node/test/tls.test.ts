// TLS and mutual TLS with a real tollgate.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Client, descriptor, type TlsOptions } from "../src/index.js";
import { RULES, Tollgate } from "./support/tollgate.js";

const folder = mkdtempSync(join(tmpdir(), "tollgate-tls-"));
let plain: Tollgate;
let mutual: Tollgate;

before(async () => {
  openssl("req", "-x509", ...key("ca"), "-subj", "/CN=test CA", "-days", "2", "-out", file("ca.pem"));
  issue("server", "DNS:tollgate.test,IP:127.0.0.1");
  issue("client", "DNS:client.test");
  const flags = ["--grpc-server-use-tls", "true", "--grpc-server-tls-cert", file("server.pem")];
  flags.push("--grpc-server-tls-key", file("server.key"));
  plain = await Tollgate.start(RULES, flags);
  mutual = await Tollgate.start(RULES, [...flags, "--grpc-client-tls-cacert", file("ca.pem")]);
});
after(async () => {
  await plain.stop();
  await mutual.stop();
  rmSync(folder, { recursive: true });
});

function file(name: string): string {
  return join(folder, name);
}

function key(name: string): string[] {
  return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", file(`${name}.key`)];
}

function openssl(...words: string[]): void {
  execFileSync("openssl", words, { stdio: "pipe" });
}

function issue(name: string, names: string): void {
  openssl("req", ...key(name), "-subj", `/CN=${name}`, "-out", file(`${name}.csr`));
  writeFileSync(file(`${name}.ext`), `subjectAltName=${names}\n`);
  const signer = ["-CA", file("ca.pem"), "-CAkey", file("ca.key"), "-CAcreateserial", "-days", "2"];
  openssl(
    "x509",
    "-req",
    "-in",
    file(`${name}.csr`),
    ...signer,
    "-extfile",
    file(`${name}.ext`),
    "-out",
    file(`${name}.pem`),
  );
}

async function sourceOf(tollgate: Tollgate, tls: boolean | TlsOptions): Promise<string> {
  using client = new Client({ addresses: tollgate.address, domain: "tests", deadlineMs: 5_000, onError: "deny", tls });
  return (await client.check([descriptor(["wide", "tls"])])).source;
}

test("TLS with a CA bundle", async () => {
  assert.equal(await sourceOf(plain, { ca: readFileSync(file("ca.pem")) }), "server");
});

test("TLS with a server name", async () => {
  const ca = readFileSync(file("ca.pem"), "utf8");
  assert.equal(await sourceOf(plain, { ca, serverName: "tollgate.test" }), "server");
  assert.equal(await sourceOf(plain, { ca, serverName: "other.test" }), "deny");
});

test("TLS does not trust a CA that is not in the bundle", async () => {
  assert.equal(await sourceOf(plain, true), "deny");
});

test("no TLS with a service that has TLS", async () => {
  assert.equal(await sourceOf(plain, false), "deny");
});

test("mutual TLS", async () => {
  const ca = readFileSync(file("ca.pem"));
  const certificate = { cert: readFileSync(file("client.pem")), key: readFileSync(file("client.key")) };
  assert.equal(await sourceOf(mutual, { ca, ...certificate }), "server");
  assert.equal(await sourceOf(mutual, { ca }), "deny");
});
