import type { Decision } from "../decision.js";
import type { Descriptor, Entry } from "../descriptor.js";
import { requireKnown } from "../known_options.js";
import { type Count, type DescriptorEntry, type DescriptorSpec, type LimitOptions, requireStyles } from "./options.js";
import { PathTemplates } from "./path_template.js";
import { RemoteAddress } from "./remote_address.js";

/** What a limiter reads of a request. */
export interface RequestView {
  readonly method: string;
  /** The path as sent; it may have a query. */
  readonly path: string;
  /** The values of a header, whose name is in lower case. */
  header(name: string): readonly string[];
  /** The address of the connection. */
  readonly peer: string | undefined;
}

/** Reads a value of a request. */
type Source<R> = (view: RequestView, path: string, request: R) => string | undefined | Promise<string | undefined>;

interface CompiledEntry<R> {
  readonly key: string;
  readonly source: Source<R>;
  readonly missing: string | undefined;
}

const KNOWN: Record<keyof LimitOptions<unknown>, true> = {
  client: true,
  descriptors: true,
  domain: true,
  hits: true,
  trustedProxies: true,
  skipPaths: true,
  skip: true,
  shadow: true,
  count: true,
  headers: true,
  status: true,
  body: true,
  contentType: true,
  errorStatus: true,
  onDecision: true,
};

const COUNTS: readonly Count[] = ["all", "failed", "successful"];

const KNOWN_ENTRY = {
  key: true,
  default: true,
  value: true,
  header: true,
  method: true,
  path: true,
  pathTemplates: true,
  remoteAddress: true,
  from: true,
} as const;

/** A request that was checked. */
export interface Checked {
  readonly decision: Decision;
  /**
   * Takes the hits of a request that passed and has ended, if its outcome counts. Does not wait for the answer.
   * Absent if all requests count.
   */
  readonly ended?: (failed: boolean) => void;
}

/** Checks the requests of a framework. */
export class Limiter<R> {
  readonly #options: LimitOptions<R>;
  readonly #skipPaths: PathTemplates;
  readonly #specs: readonly (readonly CompiledEntry<R>[])[];

  /** Throws if an option cannot be right. */
  constructor(options: LimitOptions<R>) {
    requireKnown("options", options, KNOWN);
    requireStyles(options.headers ?? []);
    const { count = "all" } = options;
    if (!COUNTS.includes(count)) throw new TypeError(`count: expected one of ${COUNTS.join(", ")}, got ${count}`);
    this.#options = options;
    this.#skipPaths = new PathTemplates(options.skipPaths ?? []);
    const remote = new RemoteAddress(options.trustedProxies ?? []);
    this.#specs = options.descriptors.map((spec) => entriesOf(spec).map((entry) => compile(entry, remote)));
  }

  /** The decision on a request; undefined if it passes without a call. */
  async check(view: RequestView, request: R): Promise<Checked | undefined> {
    const { client, domain, hits, onDecision, count = "all" } = this.#options;
    const descriptors = await this.descriptors(view, request);
    if (descriptors === undefined) return undefined;
    const options = {
      hits: typeof hits === "function" ? await hits(request) : (hits ?? 1),
      ...(domain === undefined ? {} : { domain }),
    };
    const decision = await client.checkRequest(descriptors, { ...options, dryRun: count !== "all" });
    try {
      if (onDecision) await onDecision(request, decision);
    } catch {
      // It observes the request, and must not make it fail.
    }
    if (count === "all") return { decision };
    const ended = (failed: boolean): void => {
      // Nothing is counted without the service.
      if (decision.error !== undefined || failed !== (count === "failed")) return;
      // It rejects if the client was closed meanwhile.
      client.check(descriptors, options).catch(() => undefined);
    };
    return { decision, ended };
  }

  /** The descriptors of a request; undefined if it passes without a call. */
  async descriptors(view: RequestView, request: R): Promise<Descriptor[] | undefined> {
    const [path = ""] = view.path.split("?", 1);
    if (this.#skipPaths.match(path) !== undefined) return undefined;
    const { skip } = this.#options;
    if (skip && (await skip(request))) return undefined;
    const descriptors: Descriptor[] = [];
    for (const spec of this.#specs) {
      const entries: Entry[] = [];
      for (const { key, source, missing } of spec) {
        const read = source(view, path, request);
        const value = (typeof read === "object" ? await read : read) ?? missing;
        if (value === undefined) break;
        entries.push([key, value]);
      }
      // A descriptor with a missing entry is left out.
      if (entries.length === spec.length) descriptors.push({ entries });
    }
    return descriptors.length === 0 ? undefined : descriptors;
  }
}

function entriesOf<R>(spec: DescriptorSpec<R>): readonly DescriptorEntry<R>[] {
  if (isList(spec)) return spec;
  return Object.entries(spec).map(([key, source]) =>
    typeof source === "string" ? { key, value: source } : { key, ...source },
  );
}

function isList<R>(spec: DescriptorSpec<R>): spec is readonly DescriptorEntry<R>[] {
  return Array.isArray(spec);
}

function compile<R>(entry: DescriptorEntry<R>, remote: RemoteAddress): CompiledEntry<R> {
  requireKnown(`descriptors: the entry ${entry.key}`, entry, KNOWN_ENTRY);
  return { key: entry.key, source: sourceOf(entry, remote), missing: entry.default };
}

function sourceOf<R>(entry: DescriptorEntry<R>, remote: RemoteAddress): Source<R> {
  if ("value" in entry) return () => entry.value;
  if ("header" in entry) {
    const name = entry.header.toLowerCase();
    return (view) => view.header(name).join(",") || undefined;
  }
  if ("method" in entry) return (view) => view.method;
  if ("path" in entry) return (_view, path) => path;
  if ("pathTemplates" in entry) {
    const templates = new PathTemplates(entry.pathTemplates);
    return (_view, path) => templates.match(path);
  }
  if ("remoteAddress" in entry) return (view) => remote.resolve(view.peer, () => view.header("x-forwarded-for"));
  if ("from" in entry) return (_view, _path, request) => entry.from(request);
  throw new TypeError(`descriptors: give the entry ${(entry as { key: string }).key} a source`);
}
