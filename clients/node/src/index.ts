/** Client of the tollgate rate limit service. */

export { type CheckOptions, Client, type ReserveOptions } from "./client.js";
export { type Decision, type DecisionSource, type Limit, type NoLimit, tightestLimit } from "./decision.js";
export { type Descriptor, type DescriptorLike, descriptor, type Entry } from "./descriptor.js";
export { CallError, ClosedError, type StatusName } from "./errors.js";
export { httpRefusal, type HttpRefusal, type RefusalOptions } from "./middleware/answer.js";
export type {
  Count,
  DescriptorEntry,
  DescriptorSpec,
  EntrySource,
  LimitOptions,
  RateLimitHeaders,
} from "./middleware/options.js";
export type { ClientOptions, Logger, OnError, Protocol, TlsOptions, UnknownDomain } from "./options.js";
export type { Settlement } from "./protocol.js";
export type { Reservation, SettleOptions } from "./reservation.js";
