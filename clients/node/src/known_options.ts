/** Throws a `TypeError` if the value is no object, or has a field that is no option. */
export function requireKnown(where: string, options: object, known: Record<string, true>): void {
  if (typeof options !== "object") throw new TypeError(`${where}: expected an object, got ${String(options)}`);
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(known, name)) {
      throw new TypeError(`${where}: unknown option ${name}; use ${Object.keys(known).join(", ")}`);
    }
  }
}
