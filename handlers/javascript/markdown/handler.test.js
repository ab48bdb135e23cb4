import assert from "node:assert/strict";
import { test } from "node:test";

import { Failed } from "gristmill-sdk";
import { TestContext } from "gristmill-sdk/testing";

import handler from "./handler.js";

test("Markdown becomes HTML, and its headings a list", async () => {
  assert.deepEqual(await new TestContext().run(handler, { markdown: "# Mill\n\n*Slow*." }), {
    html: "<h1>Mill</h1>\n<p><em>Slow</em>.</p>\n",
    headings: [{ depth: 1, text: "Mill" }],
  });
});

test("Markdown is required", async () => {
  await assert.rejects(new TestContext().run(handler, {}), Failed);
});
