// Reads the vectors of all clients.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the package. */
export const PACKAGE = fileURLToPath(new URL("../../..", import.meta.url));

const FOLDER = process.env.TOLLGATE_VECTORS ?? join(PACKAGE, "..", "vectors");

/** The cases of a file of vectors, or another list of it. */
export function readCases<T>(file: string, list = "cases"): (T & { name: string })[] {
  const lists = JSON.parse(readFileSync(join(FOLDER, file), "utf8")) as Record<string, (T & { name: string })[]>;
  const cases = lists[list] ?? [];
  if (cases.length === 0) throw new Error(`${file} has no ${list}`);
  return cases;
}
