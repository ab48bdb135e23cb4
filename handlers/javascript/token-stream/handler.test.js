import assert from "node:assert/strict";
import { test } from "node:test";

import { Cancelled, InvalidInput } from "gristmill-sdk";
import { TestContext } from "gristmill-sdk/testing";

import stream, { tokenize } from "./handler.ts";

test("tokens join to the text", () => {
  const text = "  Grüße,\n world… 3.5€!";
  const tokens = ["  Grüße", ",", "\n world", "…", " 3", ".", "5", "€", "!"];
  assert.deepEqual(tokenize(text), tokens);
  assert.equal(tokens.join(""), text);
  assert.deepEqual(tokenize(" \n"), []);
});

test("every chunk has its numbers", async () => {
  const ctx = new TestContext();
  assert.equal(await ctx.run(stream, { prompt: "Hello, world", max_tokens: 2 }), null);
  assert.deepEqual(ctx.outputs, ["Hello", ","]);
  assert.deepEqual(ctx.chunks[1].metrics, { input_tokens: 3, output_tokens: 2, stream_index: 1 });
});

test("a cancelled job stops between tokens", async () => {
  const ctx = new TestContext({ cancelledAfter: 1 });
  await assert.rejects(ctx.run(stream, { prompt: "a b c" }), Cancelled);
  assert.deepEqual(ctx.outputs, ["a"]);
});

test("the prompt is a string", async () => {
  await assert.rejects(new TestContext().run(stream, { prompt: 5 }), InvalidInput);
});
