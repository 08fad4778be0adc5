// Addresses that a client takes or refuses, as vectors/addresses.json has them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../../src/index.js";
import { readCases } from "../support/vectors.js";

interface Case {
  address: string;
  expect: { valid?: true; error?: string };
}

for (const { name, address, expect } of readCases<Case>("addresses.json")) {
  test(`addresses: ${name}`, () => {
    const make = (): void => {
      new Client({ addresses: address, domain: "vectors" }).close();
    };
    if (expect.valid) make();
    else {
      assert.throws(make, (error: Error) => error instanceof TypeError && error.message.includes(expect.error ?? ""));
    }
  });
}
