// A real `tollgate serve` on loopback. TOLLGATE_BIN names the binary.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

/** Rules of the tests, one domain. */
export const RULES = `
domain: tests
descriptors:
  - key: hundred
    rate_limit: { unit: hour, requests_per_unit: 100 }
  - key: route
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: remote_address
    rate_limit: { unit: hour, requests_per_unit: 5 }
  - key: wide
    rate_limit: { unit: hour, requests_per_unit: 1000000000 }
  - key: budget
    rate_limit: { unit: day, requests_per_unit: 10000, algorithm: sliding_window }
`;

const ADDRESSES = / listens: gRPC ([\d.]+:\d+), HTTP ([\d.]+:\d+)/;

/** A service that runs until `stop`. */
export class Tollgate {
  readonly #folder: string;
  readonly #flags: readonly string[];
  #process: ChildProcess | undefined;
  address = "";
  http = "";

  private constructor(folder: string, flags: readonly string[]) {
    this.#folder = folder;
    this.#flags = flags;
  }

  /** Starts the service with these rules. */
  static async start(rules = RULES, flags: readonly string[] = []): Promise<Tollgate> {
    const folder = await mkdtemp(join(tmpdir(), "tollgate-node-"));
    await writeFile(join(folder, "rules.yaml"), rules);
    const tollgate = new Tollgate(folder, flags);
    await tollgate.run();
    return tollgate;
  }

  /** Starts the process, on the port that it had before if it had one. */
  async run(): Promise<void> {
    const binary = process.env.TOLLGATE_BIN;
    if (!binary) throw new Error("Set TOLLGATE_BIN to the tollgate binary.");
    const port = this.address.split(":")[1] ?? "0";
    const flags = ["--grpc-host", "127.0.0.1", "--grpc-port", port, "--host", "127.0.0.1", "--port", "0"];
    const child = spawn(
      binary,
      ["serve", join(this.#folder, "rules.yaml"), ...flags, "--debug-port", "0", ...this.#flags],
      {
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    this.#process = child;
    const lines: string[] = [];
    await new Promise<void>((resolve, reject) => {
      child.once("exit", () => {
        reject(new Error(`tollgate ended:\n${lines.join("\n")}`));
      });
      createInterface({ input: child.stderr }).on("line", (line) => {
        if (lines.length < 100) lines.push(line);
        const found = ADDRESSES.exec(line);
        if (found === null) return;
        this.address = found[1] ?? "";
        this.http = found[2] ?? "";
        resolve();
      });
    });
  }

  /** Ends the process at once, and keeps its port for `run`. */
  async kill(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child?.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  /** Stops all threads of the process, and returns when they are. */
  async freeze(): Promise<void> {
    const pid = this.#process?.pid;
    if (pid === undefined) throw new Error("tollgate does not run");
    process.kill(pid, "SIGSTOP");
    while (!/^State:\s+T/m.test(readFileSync(`/proc/${String(pid)}/status`, "utf8"))) await sleep(5);
  }

  /** Lets a frozen process go on. */
  thaw(): void {
    this.#process?.kill("SIGCONT");
  }

  async stop(): Promise<void> {
    this.thaw();
    await this.kill();
    await rm(this.#folder, { recursive: true, force: true });
  }
}
