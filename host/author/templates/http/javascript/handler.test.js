import assert from "node:assert/strict";
import { test } from "node:test";

import app from "./handler.ts";

const words = (input) =>
  app.request("/words", { method: "POST", body: JSON.stringify(input) });

test("a greeting", async () => {
  assert.equal(await (await app.request("/")).text(), "hello\n");
});

test("words are counted", async () => {
  assert.deepEqual(await (await words({ text: "to be or not" })).json(), { words: 4 });
});

test("the text is needed", async () => {
  assert.equal((await words({})).status, 400);
});
