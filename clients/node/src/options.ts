import { isIPv6 } from "node:net";

import { requireKnown } from "./known_options.js";

/** What decides a check or a reservation without an answer. */
export type OnError = "allow" | "deny" | "local";

/** What becomes of a call whose domain no rules have. */
export type UnknownDomain = "allow" | "error";

/** The protocol of the calls: tollgate's own, or Envoy's rate limit service with check and peek only. */
export type Protocol = "tollgate" | "envoy";

/** Where a client logs, such as `console`, or a logger of pino or winston. */
export interface Logger {
  /** Logs a warning. */
  warn(message: string): void;
}

/** TLS of the connections. */
export interface TlsOptions {
  /** CA bundle, PEM. Default: the roots of Node.js. */
  readonly ca?: string | Buffer;
  /** Client certificate, PEM. It needs `key`. */
  readonly cert?: string | Buffer;
  /** Key of the client certificate, PEM. */
  readonly key?: string | Buffer;
  /** Name that the server's certificate must have. Default: the host of the address. */
  readonly serverName?: string;
}

/** Options of a client. */
export interface ClientOptions {
  /** `host:port` of the service, one or several. Calls rotate over those that are connected. Default: `localhost:8081`. */
  readonly addresses?: string | readonly string[];
  /** Domain of a call that names none. */
  readonly domain?: string;
  /** Protocol of the calls. Default: `tollgate`. */
  readonly protocol?: Protocol;
  /** Longest wait of a call in milliseconds, connecting included. Default: 100. */
  readonly deadlineMs?: number;
  /** TLS: `true` for the defaults, or its options. Default: off. */
  readonly tls?: boolean | TlsOptions;
  /** Pings on a connection with calls in flight. */
  readonly keepalive?: {
    /** Milliseconds between pings. Default: 30,000. */
    readonly intervalMs?: number;
    /** Milliseconds to wait for the answer. Default: 10,000. */
    readonly timeoutMs?: number;
  };
  /** What decides a check or a reservation without an answer. Default: `allow`. */
  readonly onError?: OnError;
  /**
   * With `error`, a call whose domain no rules have rejects with a `TypeError`. It needs the protocol
   * `tollgate`. Default: `allow`.
   */
  readonly unknownDomain?: UnknownDomain;
  /** Token bucket of `onError: "local"`, one for each list of descriptors. */
  readonly local?: {
    /** Tokens a second, from 1 to 1,000,000,000. Default: 10. */
    readonly perSecond?: number;
    /** Tokens that a full bucket holds, from 1 to 1,000,000,000. Default: 10. */
    readonly burst?: number;
  };
  /** Circuit breaker of check, reserve and peek. */
  readonly breaker?: {
    /** Failures in a row that open it. Default: 5. */
    readonly failures?: number;
    /** Milliseconds until it lets one call through. Default: 1,000. */
    readonly openMs?: number;
  };
  /** Most refusals that are repeated without a call; 0 turns the denial cache off. Default: 10,000. */
  readonly denialCacheEntries?: number;
  /** Whether checks are decided by leased hits, without a call. Default: those of the middleware are. */
  readonly leases?: boolean;
  /** Sends concurrent checks over one stream, with the protocol `tollgate`. Default: false. */
  readonly batching?: boolean;
  /** Connects by the HTTP proxy that the environment names, such as `https_proxy`. Default: false. */
  readonly httpProxy?: boolean;
  /** Where the client logs that `onError` decides: at the first decision, then at most once a minute. Default: `console`. */
  readonly logger?: Logger;
  /** Time in milliseconds, for the breaker, the denial cache, leases, the local buckets and the log. Default: `performance.now`. */
  readonly clock?: () => number;
}

/** Options with their defaults. */
export interface ResolvedOptions {
  readonly addresses: readonly string[];
  readonly domain: string | undefined;
  readonly protocol: Protocol;
  readonly deadlineMs: number;
  readonly tls: TlsOptions | undefined;
  readonly keepaliveIntervalMs: number;
  readonly keepaliveTimeoutMs: number;
  readonly onError: OnError;
  readonly unknownDomain: UnknownDomain;
  readonly localPerSecond: number;
  readonly localBurst: number;
  readonly breakerFailures: number;
  readonly breakerOpenMs: number;
  readonly denialCacheEntries: number;
  readonly leases: boolean | undefined;
  readonly batching: boolean;
  readonly httpProxy: boolean;
  readonly logger: Logger;
  readonly clock: () => number;
}

const TOKENS_MAX = 1_000_000_000;
const TIMER_MS_MAX = 2 ** 31 - 1;

const KNOWN: Record<keyof ClientOptions, true> = {
  addresses: true,
  domain: true,
  protocol: true,
  deadlineMs: true,
  tls: true,
  keepalive: true,
  onError: true,
  unknownDomain: true,
  local: true,
  breaker: true,
  denialCacheEntries: true,
  leases: true,
  batching: true,
  httpProxy: true,
  logger: true,
  clock: true,
};

/** The options with their defaults. Throws if one of them cannot be right. */
export function resolveOptions(options: ClientOptions): ResolvedOptions {
  const { keepalive = {}, local = {}, breaker = {}, tls = false } = options;
  requireKnown("options", options, KNOWN);
  requireKnown("keepalive", keepalive, { intervalMs: true, timeoutMs: true });
  requireKnown("local", local, { perSecond: true, burst: true });
  requireKnown("breaker", breaker, { failures: true, openMs: true });
  return {
    addresses: resolveAddresses(options.addresses ?? "localhost:8081"),
    domain: options.domain,
    protocol: oneOf("protocol", options.protocol ?? "tollgate", ["tollgate", "envoy"]),
    deadlineMs: within("deadlineMs", options.deadlineMs ?? 100, 1, TIMER_MS_MAX),
    tls: tls === false ? undefined : resolveTls(tls === true ? {} : tls),
    keepaliveIntervalMs: within("keepalive.intervalMs", keepalive.intervalMs ?? 30_000, 1, TIMER_MS_MAX),
    keepaliveTimeoutMs: within("keepalive.timeoutMs", keepalive.timeoutMs ?? 10_000, 1, TIMER_MS_MAX),
    onError: oneOf("onError", options.onError ?? "allow", ["allow", "deny", "local"]),
    unknownDomain: resolveUnknownDomain(options),
    localPerSecond: within("local.perSecond", local.perSecond ?? 10, 1, TOKENS_MAX),
    localBurst: within("local.burst", local.burst ?? 10, 1, TOKENS_MAX),
    breakerFailures: within("breaker.failures", breaker.failures ?? 5, 1, Number.MAX_SAFE_INTEGER),
    breakerOpenMs: within("breaker.openMs", breaker.openMs ?? 1_000, 0, TIMER_MS_MAX),
    denialCacheEntries: within("denialCacheEntries", options.denialCacheEntries ?? 10_000, 0, 2 ** 24),
    leases: options.leases === undefined ? undefined : boolean("leases", options.leases),
    batching: boolean("batching", options.batching ?? false),
    httpProxy: boolean("httpProxy", options.httpProxy ?? false),
    logger: resolveLogger(options.logger ?? console),
    clock: options.clock ?? (() => performance.now()),
  };
}

function resolveAddresses(addresses: string | readonly string[]): readonly string[] {
  const list = typeof addresses === "string" ? [addresses] : [...addresses];
  if (list.length === 0) throw new TypeError("addresses: expected at least one host:port");
  for (const address of list) {
    if (!isAddress(address)) {
      // What is before the last @ may be a password.
      const masked = address.replace(/^.*@/s, "***@");
      throw new TypeError(`address "${masked}" is invalid; write host:port, such as localhost:8081`);
    }
  }
  return list;
}

function isAddress(text: string): boolean {
  const found = /^(?:\[([0-9A-Fa-f:.]+)\]|[0-9A-Za-z._-]+):([0-9]{1,5})$/.exec(text);
  const [, ipv6, port] = found ?? [];
  return Number(port) >= 1 && Number(port) <= 65_535 && (ipv6 === undefined || isIPv6(ipv6));
}

function resolveTls(tls: TlsOptions): TlsOptions {
  requireKnown("tls", tls, { ca: true, cert: true, key: true, serverName: true });
  if ((tls.cert === undefined) !== (tls.key === undefined)) {
    throw new TypeError("tls: set cert and key together");
  }
  return tls;
}

function resolveUnknownDomain({ unknownDomain = "allow", protocol }: ClientOptions): UnknownDomain {
  if (unknownDomain === "error" && protocol === "envoy") {
    throw new TypeError("unknownDomain: error needs the protocol tollgate");
  }
  return oneOf("unknownDomain", unknownDomain, ["allow", "error"]);
}

function resolveLogger(logger: Logger): Logger {
  if (typeof (logger as Partial<Logger>).warn !== "function") throw new TypeError("logger: expected a method warn");
  return logger;
}

function oneOf<T extends string>(name: string, value: T, values: readonly T[]): T {
  if (!values.includes(value)) throw new TypeError(`${name}: expected one of ${values.join(", ")}, got ${value}`);
  return value;
}

function boolean(name: string, value: boolean): boolean {
  if (typeof value !== "boolean") throw new TypeError(`${name}: expected true or false, got ${String(value)}`);
  return value;
}

function within(name: string, value: number, min: number, max: number): number {
  if (!Number.isSafeInteger(value) || value < min || value > max) {
    throw new RangeError(
      `${name}: expected a whole number from ${String(min)} to ${String(max)}, got ${String(value)}`,
    );
  }
  return value;
}
