// Which lines of a text are frames of the bundle, and what becomes of them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { readable, readableText } from "../src/stack.js";

before(() => {
  // Line 3 of the bundle is the handler's, line 2 the SDK's.
  const table = { files: ["handler.js"], lines: [0, 0, 0, [0, 7]] };
  globalThis.gristmillBundle = JSON.stringify(table);
});
after(() => delete globalThis.gristmillBundle);

const lines = (...all) => all.join("\n");

/** A stack of each engine. */
const QUICKJS = [
  "    at get x (/gristmill-bundle.js:3:4)",
  "    at map (native)",
  "    at run (/gristmill-bundle.js:2:1)",
  "    at <anonymous> (/gristmill-platform.js:1:4215)",
];
const STARLINGMONKEY = [
  "get x@gristmill-bundle.js:3:4",
  "deep/<@gristmill-bundle.js:2:1",
  "async*run@gristmill-bundle.js:2:1",
  "@gristmill-bundle.js line 3 > eval:1:7",
  "handle@/tmp/3bdbd982c92e/sources/initializer.js:4775:28",
];

test("a stack has the handler's own frames alone", () => {
  assert.equal(readable(lines(...QUICKJS, "")), "    at get x (handler.js:7)");
  assert.equal(readable(lines(...STARLINGMONKEY, "")), "get x@handler.js:7");
  const text = lines("Error: no flour", ...QUICKJS, "and more");
  assert.equal(readableText(text), lines("Error: no flour", "    at get x (handler.js:7)", "and more"));
});

test("text of a handler is not changed", () => {
  for (const text of [
    "see bundle.js:2",
    "/bundle.js:3:4",
    "loaded dist/platform.js:10",
    lines("served /platform.js:1:2 and bundle.js:3", "    at map (native)"),
  ]) {
    assert.equal(readableText(text), text);
    assert.equal(readable(text.split("\n")[0]), text.split("\n")[0]);
  }
});

test("a line that is no frame stays, whatever place it names", () => {
  const text = lines("gristmill-bundle.js:2 is slow", "and gristmill-platform.js:1 too");
  assert.equal(readableText(text), text);
  assert.equal(readable(text), text);
  assert.equal(readableText("gristmill-bundle.js:3 is slow"), "handler.js:7 is slow");
});
