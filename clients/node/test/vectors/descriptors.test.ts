// Descriptors of requests, as vectors/descriptors.json has them.

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client } from "../../src/client.js";
import { Limiter, type RequestView } from "../../src/middleware/limiter.js";
import type { DescriptorEntry, LimitOptions } from "../../src/middleware/options.js";
import { readCases } from "../support/vectors.js";

interface Case {
  config: {
    descriptors: Record<string, unknown>[][];
    trusted_proxies?: string[];
    skip_paths?: string[];
    hits?: number;
  };
  request: { method: string; path: string; headers: [string, string][]; peer: string };
  expect: { descriptors?: [string, string][][]; skip?: boolean };
}

for (const { name, config, request, expect } of readCases<Case>("descriptors.json")) {
  test(`descriptors: ${name}`, async () => {
    const limiter = new Limiter(optionsOf(config));
    const descriptors = await limiter.descriptors(viewOf(request), undefined);
    if (expect.skip) assert.equal(descriptors, undefined);
    else
      assert.deepEqual(
        descriptors?.map(({ entries }) => entries),
        expect.descriptors,
      );
  });
}

function optionsOf(config: Case["config"]): LimitOptions<undefined> {
  return {
    client: undefined as unknown as Client,
    descriptors: config.descriptors.map((spec) => spec.map(entryOf)),
    ...(config.trusted_proxies && { trustedProxies: config.trusted_proxies }),
    ...(config.skip_paths && { skipPaths: config.skip_paths }),
    ...(config.hits !== undefined && { hits: config.hits }),
  };
}

function entryOf(entry: Record<string, unknown>): DescriptorEntry<undefined> {
  const names: Record<string, string> = { path_templates: "pathTemplates", remote_address: "remoteAddress" };
  const renamed = Object.entries(entry).map(([name, value]) => [names[name] ?? name, value]);
  return Object.fromEntries(renamed) as DescriptorEntry<undefined>;
}

function viewOf({ method, path, headers, peer }: Case["request"]): RequestView {
  return {
    method,
    path,
    peer: peer === "" ? undefined : peer.slice(0, peer.lastIndexOf(":")).replace(/^\[|\]$/g, ""),
    header: (wanted) => headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value),
  };
}
