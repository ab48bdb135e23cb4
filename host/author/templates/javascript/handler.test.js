import assert from "node:assert/strict";
import { test } from "node:test";

import { Cancelled, InvalidInput } from "gristmill-sdk";
import { TestContext } from "gristmill-sdk/testing";

import stream from "./handler.ts";

test("every word is a chunk", async () => {
  const ctx = new TestContext();
  assert.deepEqual(await ctx.run(stream, { text: "to be or not" }), { words: 4 });
  assert.deepEqual(ctx.outputs, ["to", "be", "or", "not"]);
});

test("a cancelled job stops between words", async () => {
  const ctx = new TestContext({ cancelledAfter: 1 });
  await assert.rejects(ctx.run(stream, { text: "to be or not" }), Cancelled);
  assert.deepEqual(ctx.outputs, ["to"]);
});

test("the text is needed", async () => {
  await assert.rejects(new TestContext().run(stream, {}), InvalidInput);
});
