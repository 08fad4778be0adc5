// Reads the vectors of all clients.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the package. */
export const PACKAGE = fileURLToPath(new URL("../../..", import.meta.url));

const FOLDER = process.env.TOLLGATE_VECTORS ?? join(PACKAGE, "..", "vectors");

/** The cases of a file of vectors. */
export function readCases<T>(file: string): (T & { name: string })[] {
  const { cases } = JSON.parse(readFileSync(join(FOLDER, file), "utf8")) as { cases: (T & { name: string })[] };
  if (cases.length === 0) throw new Error(`${file} has no cases`);
  return cases;
}
