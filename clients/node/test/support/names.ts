// Names of vectors: snake_case there, camelCase here.

/** The value with all its fields in camelCase. */
export function camelCased(value: unknown): Record<string, unknown> {
  return renamed(value) as Record<string, unknown>;
}

function renamed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(renamed);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).map(([name, field]) => [camelCase(name), renamed(field)]);
  return Object.fromEntries(fields) as unknown;
}

function camelCase(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
