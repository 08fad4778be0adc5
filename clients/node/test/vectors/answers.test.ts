// Answers to requests, as vectors/answers.json has them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { status } from "@grpc/grpc-js";

import type { Decision } from "../../src/decision.js";
import { type AnswerOptions, grpcAnswer, httpAnswer } from "../../src/middleware/answer.js";
import { camelCased } from "../support/names.js";
import { readCases } from "../support/vectors.js";

interface Case {
  config: Record<string, unknown>;
  decision: Record<string, unknown>;
  expect: {
    http: { pass: boolean; headers: Record<string, string>; status?: number; body?: string; content_type?: string };
    grpc: { pass: boolean; metadata: Record<string, string>; code?: string; message?: string; retry_ms?: number };
  };
}

for (const { name, config, decision, expect } of [
  ...readCases<Case>("answers.json"),
  ...readCases<Case>("leases.json", "answers"),
]) {
  const options = camelCased(config) as AnswerOptions;
  const decided = camelCased(decision) as unknown as Decision;

  test(`answers: ${name}: HTTP`, () => {
    const { headers, refusal } = httpAnswer(decided, options);
    assert.deepEqual(lowerCase(headers), expect.http.headers);
    assert.equal(refusal === undefined, expect.http.pass);
    const { status, body, content_type } = expect.http;
    if (refusal !== undefined) assert.deepEqual(refusal, { status, body, contentType: content_type });
  });

  test(`answers: ${name}: gRPC`, () => {
    const { metadata, refusal } = grpcAnswer(decided, options);
    assert.deepEqual(Object.fromEntries(metadata), expect.grpc.metadata);
    assert.equal(refusal === undefined, expect.grpc.pass);
    if (refusal !== undefined) {
      assert.equal(status[refusal.code], expect.grpc.code);
      assert.equal(refusal.message, expect.grpc.message);
      assert.equal(refusal.retryMs, expect.grpc.retry_ms);
    }
  });
}

function lowerCase(headers: readonly (readonly [string, string])[]): Record<string, string> {
  return Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value]));
}
