/** Throws a `TypeError` if the object has a field that is no option. */
export function requireKnown(where: string, options: object, known: Record<string, true>): void {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(known, name)) {
      throw new TypeError(`${where}: unknown option ${name}; use ${Object.keys(known).join(", ")}`);
    }
  }
}
