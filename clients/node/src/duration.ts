import type { Duration } from "./gen/google/protobuf/duration.js";

/** The duration in milliseconds. */
export function millisecondsOf(duration: Duration | undefined): number | undefined {
  if (duration === undefined) return undefined;
  return numberOf(duration.seconds) * 1_000 + duration.nanos / 1_000_000;
}

/** The duration of milliseconds, to the nanosecond. */
export function durationOf(milliseconds: number): Duration {
  const seconds = Math.floor(milliseconds / 1_000);
  return { seconds: BigInt(seconds), nanos: Math.round((milliseconds - seconds * 1_000) * 1_000_000) };
}

/** The number, or 2^53 - 1 if it is larger. */
export function numberOf(value: bigint): number {
  return value > Number.MAX_SAFE_INTEGER ? Number.MAX_SAFE_INTEGER : Number(value);
}
