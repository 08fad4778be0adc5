import { requireKnown } from "./known_options.js";

/** Keys and values of a check that is remembered or leased. */
const BYTES_MAX = 1_024;

/** A key and its value. */
export type Entry = readonly [key: string, value: string];

/** A list of entries that the rules match, and its hits. */
export interface Descriptor {
  /** The entries, in the order of the rules. */
  readonly entries: readonly Entry[];
  /** Hits of this descriptor, in place of those of the call: a whole number from 0 to 2^53 - 1. */
  readonly hits?: number;
}

/**
 * A descriptor, or an object of keys and values: `{ user: "ann", path: "/" }`.
 *
 * JavaScript moves keys that are whole numbers to the front. Such a descriptor needs `entries`.
 */
export type DescriptorLike = Descriptor | Readonly<Record<string, string>>;

/** A descriptor of these entries: `descriptor(["user", "ann"], ["path", "/"])`. */
export function descriptor(...entries: Entry[]): Descriptor {
  return { entries };
}

/** The descriptors in one form. Throws if they can never be right. */
export function toDescriptors(descriptors: readonly DescriptorLike[]): readonly Descriptor[] {
  if (!Array.isArray(descriptors)) throw new TypeError("descriptors: expected an array of descriptors");
  return (descriptors as readonly DescriptorLike[]).map(toDescriptor);
}

function toDescriptor(descriptor: DescriptorLike): Descriptor {
  // An iterable is an array of pairs or a Map.
  if (typeof (descriptor as unknown) !== "object" || !(descriptor as unknown) || Symbol.iterator in descriptor) {
    throw new TypeError('descriptors: expected objects, such as { user: "ann" } or { entries: [["user", "ann"]] }');
  }
  if (isDescriptor(descriptor)) requireKnown("descriptors", descriptor, { entries: true, hits: true });
  const made = isDescriptor(descriptor) ? descriptor : { entries: Object.entries(descriptor) };
  for (const entry of made.entries) {
    if (!Array.isArray(entry) || typeof entry[0] !== "string" || typeof entry[1] !== "string") {
      throw new TypeError("descriptors: expected keys and values to be strings");
    }
  }
  if (made.hits !== undefined) validateHits(made.hits);
  return made;
}

function isDescriptor(descriptor: DescriptorLike): descriptor is Descriptor {
  return Array.isArray(descriptor.entries);
}

/** Throws if it is no number of hits. */
export function validateHits(hits: number): void {
  if (!Number.isSafeInteger(hits) || hits < 0) {
    throw new RangeError(`hits: expected a whole number from 0 to 2^53 - 1, got ${String(hits)}`);
  }
}

/** The hits of each descriptor, of which the call's hits are the default. */
export function effectiveHits(descriptors: readonly Descriptor[], hits: number | undefined): number[] {
  return descriptors.map((descriptor) => descriptor.hits ?? hits ?? 1);
}

/** The identity of a list of descriptors with its domain, without hits. Different lists have different texts. */
export function identity(domain: string, descriptors: readonly Descriptor[]): string {
  let text = sized(domain);
  for (const { entries } of descriptors) {
    text += `${String(entries.length)}:`;
    for (const [key, value] of entries) text += sized(key) + sized(value);
  }
  return text;
}

/** A text after its length, so that no two lists of texts are equal. */
function sized(text: string): string {
  return `${String(text.length)}:${text}`;
}

/** The identity of a check that is remembered or leased; undefined if its keys and values are too long. */
export function checkKey(domain: string, descriptors: readonly Descriptor[]): string | undefined {
  let bytes = 0;
  for (const { entries } of descriptors) {
    for (const [key, value] of entries) bytes += Buffer.byteLength(key) + Buffer.byteLength(value);
  }
  return bytes > BYTES_MAX ? undefined : identity(domain, descriptors);
}
