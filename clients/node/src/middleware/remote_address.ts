import { BlockList, isIPv4, isIPv6 } from "node:net";

const MAPPED_PREFIX_BITS = 96;

/** Finds the address of a client behind trusted proxies. */
export class RemoteAddress {
  readonly #trusted = new BlockList();

  /** Trusted proxies are addresses and CIDR blocks. Throws a `TypeError` for any other text. */
  constructor(trustedProxies: readonly string[]) {
    for (const text of trustedProxies) this.#trust(text);
  }

  /**
   * The address of the client.
   *
   * `peer` is the address of the connection, and `forwardedFor` the values of `X-Forwarded-For` in their order.
   */
  resolve(peer: string | undefined, forwardedFor: () => readonly string[]): string | undefined {
    let client = peer === undefined ? undefined : parseAddress(peer);
    if (client === undefined || !this.#isTrusted(client)) return client;
    const hops = forwardedFor().flatMap((value) => value.split(","));
    for (const hop of hops.reverse()) {
      const address = parseAddress(hop.trim());
      if (address === undefined) break;
      client = address;
      if (!this.#isTrusted(address)) break;
    }
    return client;
  }

  #isTrusted(address: string): boolean {
    return this.#trusted.check(address, isIPv4(address) ? "ipv4" : "ipv6");
  }

  #trust(text: string): void {
    const [network = "", length, ...rest] = text.split("/");
    const address = parseIp(network);
    const widest = isIPv6(network) ? 128 : 32;
    const bits = length === undefined ? widest : /^\d{1,3}$/.test(length) ? Number(length) : NaN;
    if (address === undefined || !(bits <= widest) || rest.length > 0) {
      throw new TypeError(`trustedProxies: expected an address or a CIDR block, got ${text}`);
    }
    // An IPv4-mapped block is a block of IPv4.
    const mapped = isIPv4(address) && widest === 128;
    const prefix = mapped ? bits - MAPPED_PREFIX_BITS : bits;
    if (prefix < 0) this.#trusted.addSubnet(network, bits, "ipv6");
    else this.#trusted.addSubnet(address, prefix, isIPv4(address) ? "ipv4" : "ipv6");
  }
}

/** The address of a text that may have a port, brackets or an IPv6 zone; undefined if it is none. */
export function parseAddress(text: string): string | undefined {
  const bracketed = /^\[([^\]]*)\](?::\d{1,5})?$/.exec(text);
  if (bracketed) return isIPv4(bracketed[1] ?? "") ? undefined : parseIp(bracketed[1] ?? "");
  const withPort = /^([^:]*):\d{1,5}$/.exec(text);
  return parseIp(withPort?.[1] ?? text);
}

/** The address as text of one form: IPv4-mapped as IPv4, IPv6 as in RFC 5952. */
function parseIp(text: string): string | undefined {
  if (isIPv4(text)) return text;
  const [address = ""] = text.split("%");
  if (!isIPv6(address)) return undefined;
  // The URL parser writes IPv6 as RFC 5952 does, but for IPv4-mapped addresses.
  const short = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(short);
  if (mapped === null) return short;
  const [high, low] = [parseInt(mapped[1] ?? "", 16), parseInt(mapped[2] ?? "", 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}
