// Removes a folder of build products: `node scripts/clean.js FOLDER`.

import { rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = process.argv[2];
if (folder !== "build" && folder !== "dist") throw new Error("usage: node scripts/clean.js build|dist");
rmSync(join(dirname(dirname(fileURLToPath(import.meta.url))), folder, "/"), { recursive: true, force: true });
