import type { Client } from "../client.js";
import type { Decision } from "../decision.js";

/** A style of rate limit headers: `RateLimit-*`, `X-RateLimit-*`, or `RateLimit-Policy` and `RateLimit` of the IETF draft. */
export type RateLimitHeaders = "ratelimit" | "x-ratelimit" | "ratelimit-policy";

/** Where an entry has its value from. */
export type EntrySource<R> =
  /** A fixed text. */
  | { readonly value: string }
  /** The values of a header, joined by `,`; missing if empty. */
  | { readonly header: string }
  /** The HTTP method; in gRPC `POST`. */
  | { readonly method: true }
  /** The path without the query, as sent; in gRPC `/package.Service/Method`. */
  | { readonly path: true }
  /** The first template that matches the path, such as `/users/{id}` or `/static/{rest...}`. */
  | { readonly pathTemplates: readonly string[] }
  /** The address of the client, behind the trusted proxies. */
  | { readonly remoteAddress: true }
  /** A text of the request, or nothing. */
  | { readonly from: (request: R) => string | undefined | Promise<string | undefined> };

/** An entry of a descriptor: its key, one source, and the value if the source is missing. */
export type DescriptorEntry<R> = { readonly key: string; readonly default?: string } & EntrySource<R>;

/**
 * The entries of a descriptor. If one is missing and has no default, the descriptor is left out.
 *
 * An object has a source for each key, or a fixed text: `{ plan: "free", user: { header: "x-user" } }`.
 */
export type DescriptorSpec<R> =
  readonly DescriptorEntry<R>[] | Readonly<Record<string, string | ({ readonly default?: string } & EntrySource<R>)>>;

/** Which requests take hits. */
export type Count = "all" | "failed" | "successful";

/** Options of a middleware. `R` is the framework's request. */
export interface LimitOptions<R> {
  /** The client that makes the checks. A middleware does not close it. */
  readonly client: Client;
  /** Descriptors of a request. A request without any passes without a call. */
  readonly descriptors: readonly DescriptorSpec<R>[];
  /** Domain of the rules. Default: the client's. */
  readonly domain?: string;
  /** Hits of a request: a number, or a function of the request. Default: 1. */
  readonly hits?: number | ((request: R) => number | Promise<number>);
  /** Addresses and CIDR blocks whose `X-Forwarded-For` is believed. Default: none. */
  readonly trustedProxies?: readonly string[];
  /** Path templates that pass without a call. Default: none. */
  readonly skipPaths?: readonly string[];
  /** Whether a request passes without a call. Default: none does. */
  readonly skip?: (request: R) => boolean | Promise<boolean>;
  /** The check is made, but the request always passes and no headers are added. Default: false. */
  readonly shadow?: boolean;
  /**
   * Requests that take hits: `all`, or those that `failed` or were `successful`. The latter are checked by a dry run,
   * and take hits once they have a status. Default: `all`.
   */
  readonly count?: Count;
  /** Styles of rate limit headers. Default: `["ratelimit"]`. */
  readonly headers?: readonly RateLimitHeaders[];
  /** HTTP status of a refused request. Default: 429. */
  readonly status?: number;
  /** Body of a refused request. Default: `Too Many Requests`. */
  readonly body?: string;
  /** Content type of that body. Default: `text/plain; charset=utf-8`. */
  readonly contentType?: string;
  /** HTTP status of a request that `onError: "deny"` refuses. Default: 503. */
  readonly errorStatus?: number;
  /** Called after each check. An error of it is dropped. */
  readonly onDecision?: (request: R, decision: Decision) => void | Promise<void>;
}

const STYLES: readonly RateLimitHeaders[] = ["ratelimit", "x-ratelimit", "ratelimit-policy"];

/** Throws a `TypeError` if a style of headers is unknown. */
export function requireStyles(styles: readonly RateLimitHeaders[]): void {
  for (const style of styles) {
    if (!STYLES.includes(style)) throw new TypeError(`headers: expected any of ${STYLES.join(", ")}, got ${style}`);
  }
}
