// What counts as left behind by a job on StarlingMonkey, with the timers and streams of Node.

import assert from "node:assert/strict";
import { test } from "node:test";

// Node's own one uses timers itself.
let answer;
globalThis.fetch = () => new Promise((resolve, reject) => (answer = { resolve, reject }));
const { isLeft } = await import("../src/starlingmonkey/leftovers.js");

const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

test("a timer counts until it has run or was stopped", async () => {
  assert.equal(isLeft(), false);
  const given = new Promise((resolve) => setTimeout((...args) => resolve(args), 1, "a", "b"));
  assert.equal(isLeft(), true);
  assert.deepEqual(await given, ["a", "b"]);
  assert.equal(isLeft(), false);
  for (const start of [setTimeout, setInterval])
    for (const stop of [clearTimeout, clearInterval]) {
      const timer = start(() => {}, 60_000);
      assert.equal(isLeft(), true);
      stop(timer);
      assert.equal(isLeft(), false);
    }
  let runs = 0;
  const interval = setInterval(() => (runs += 1), 1);
  while (runs < 2) await later(1);
  assert.equal(isLeft(), true);
  clearInterval(interval);
  assert.equal(isLeft(), false);
  assert.throws(() => setTimeout("code"), TypeError);
  assert.equal(isLeft(), false);
});

test("a request counts until it has an answer, and a body until it is read", async () => {
  /** The end of a promise: what is left before, its value, and what is left then. */
  const around = async (promise, end) => {
    const before = isLeft();
    end();
    const value = await promise.catch((error) => error.message);
    return [before, value, isLeft()];
  };
  let body;
  const start = (controller) => (body = controller);
  const made = () => new Response(new ReadableStream({ start }));

  const response = made();
  assert.deepEqual(await around(fetch("/"), () => answer.resolve(response)), [
    true,
    response,
    false,
  ]);
  const refuse = () => answer.reject(new TypeError("refused"));
  assert.deepEqual(await around(fetch("/"), refuse), [true, "refused", false]);

  const text = response.text();
  body.enqueue(new TextEncoder().encode("flour"));
  assert.deepEqual(await around(text, () => body.close()), [true, "flour", false]);

  const reader = made().body.getReader();
  const end = { value: undefined, done: true };
  assert.deepEqual(await around(reader.read(), () => body.close()), [true, end, false]);

  const piped = made().body.pipeTo(new WritableStream());
  assert.deepEqual(await around(piped, () => body.close()), [true, undefined, false]);
});
