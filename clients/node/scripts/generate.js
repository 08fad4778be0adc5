// Generates the TypeScript of the two protocols: `node scripts/generate.js FOLDER`.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const folder = process.argv[2];
if (folder === undefined) throw new Error("usage: node scripts/generate.js FOLDER");
mkdirSync(folder, { recursive: true });

const systems = { x64: "buf-linux-x64", arm64: "buf-linux-aarch64" };
const buf = join(root, "tools", "node_modules", "@bufbuild", String(systems[process.arch]), "bin", "buf");
if (!existsSync(buf)) throw new Error(`${buf} is missing: run npm ci --prefix tools, on Linux`);

const inputs = [
  ["../../proto", "--path", "../../proto/tollgate/v1/rate_limits.proto"],
  ["../proto", "--path", "../proto/rls.proto"],
];
for (const input of inputs) {
  execFileSync(buf, ["generate", ...input, "--include-imports", "--include-wkt", "--output", folder], {
    cwd: root,
    stdio: "inherit",
  });
}
