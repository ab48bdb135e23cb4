// Compares `Promise.all` and its kind, of the SDK's promises for QuickJS, with those of Node.

import assert from "node:assert/strict";
import { register } from "node:module";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { describe } from "../src/messages.js";

// The event loop imports interfaces of the host. Here a timer is polled until it is due.
const host =
  "data:text/javascript,export const poll = () => [], subscribeDuration = () => ({ [Symbol.dispose]() {} });";
const hooks = `export const resolve = (name, context, next) =>
  name.startsWith("gwsi:") ? { url: "${host}", shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

// The modules replace globals, which the tests themselves need as they were.
const names = ["Promise", "queueMicrotask", "AbortController", "AbortSignal"];
names.push("Event", "EventTarget");
names.push(...["Timeout", "Interval"].flatMap((what) => [`set${what}`, `clear${what}`]));
const node = names.map((name) => Object.getOwnPropertyDescriptor(globalThis, name));
const { fromAsync } = Array;
await import("../src/quickjs/events.js");
const ours = globalThis.Promise;
const { AbortSignal: Signal } = globalThis;
const { clearTimeout: stop, setInterval: repeat, setTimeout: start } = globalThis;
for (const [index, name] of names.entries()) {
  Object.defineProperty(globalThis, name, node[index]);
}
Array.fromAsync = fromAsync;
const { wait, whenReady } = await import("../src/quickjs/event-loop.js");

/** How the promise settles that `work` makes with each class, Node's first. */
async function outcomes(work) {
  const outcome = (promise) =>
    promise.then(
      (value) => ({ value }),
      (error) => ({ error: error instanceof TypeError ? "TypeError" : error }),
    );
  const stuck = () => new Error("nothing settles the promise");
  return [await outcome(work(Promise)), wait(() => outcome(work(ours)), stuck)];
}

const ALL = ["all", "allSettled", "any", "race"];

/** A promise, a value and an object with `then`. */
function* sacks(Kind) {
  yield Kind.resolve(1);
  yield 2;
  yield { then: (resolve) => resolve(3) };
}

test("any iterable is accepted", async () => {
  const iterables = [
    sacks,
    (Kind) => new Set(sacks(Kind)),
    (Kind) => new Map([[Kind.reject(1), "rye"]]).keys(),
    (Kind) => [Kind.reject(1), undefined, 2],
    () => "ab",
  ];
  for (const name of ALL)
    for (const [index, iterable] of iterables.entries()) {
      const [theirs, own] = await outcomes((Kind) => Kind[name](iterable(Kind)));
      assert.deepEqual(own, theirs, `${name} of iterable ${index}`);
    }
});

test("no items are results at once, except for race", async () => {
  for (const name of ALL.slice(0, 3)) {
    const [theirs, own] = await outcomes((Kind) => Kind[name](new Set()));
    assert.deepEqual(own, theirs, name);
  }
});

test("a value that is not iterable, and an iterable that fails, reject the promise", async () => {
  const broken = function* () {
    yield 1;
    throw new RangeError("no grain");
  };
  for (const name of ALL.filter((name) => name !== "race"))
    for (const items of [() => 5, () => undefined, () => ({ length: 1 }), broken]) {
      const [theirs, own] = await outcomes((Kind) => Kind[name](items()));
      assert.ok("error" in own, name);
      assert.deepEqual(own, theirs, name);
    }
});

test("results have the order of the items", async () => {
  // Settles after the other items.
  const late = (Kind, settle) =>
    new Kind((resolve, reject) =>
      Kind.resolve()
        .then(() => {})
        .then(() => {})
        .then(() => (settle ? resolve(1) : reject(1))),
    );
  const cases = [
    ["all", true],
    ["allSettled", true],
    ["allSettled", false],
  ];
  for (const [name, settle] of cases) {
    const [theirs, own] = await outcomes((Kind) => Kind[name](new Set([late(Kind, settle), 2])));
    assert.deepEqual(own, theirs, name);
  }
  const [theirs, own] = await outcomes((Kind) => Kind.any([late(Kind, false), Kind.reject(2)]));
  assert.deepEqual(own.error.errors, [1, 2]);
  assert.deepEqual(own.error.errors, theirs.error.errors);
});

test("any rejects with the AggregateError of the language, and the log has its errors", async () => {
  const reasons = [new Error("no flour"), new RangeError("no water")];
  const fail = (Kind) => Kind.any(new Set(reasons.map((reason) => Kind.reject(reason))));
  for (const { error } of await outcomes(fail)) {
    assert.ok(error instanceof AggregateError);
    assert.equal(error.message, "All promises were rejected");
    assert.deepEqual(error.errors, reasons);
    assert.match(describe(error), /^one of them: Error: no flour$/m);
    assert.match(describe(error), /^one of them: RangeError: no water$/m);
  }
});

test("a subclass makes promises of its own kind", async () => {
  for (const Kind of [Promise, ours]) {
    class Sack extends Kind {}
    for (const name of ALL) assert.ok(Sack[name]([1]) instanceof Sack, name);
  }
});

test("a stream that never waits for the host does not keep the chunks of before", () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  // Arrays, since Node frees buffers later, on another thread.
  const heldBytes = () => {
    gc();
    return process.memoryUsage().heapUsed;
  };
  const before = heldBytes();
  let left = 1000;
  let after;
  const stream = () =>
    new ours((resolve) => {
      const next = () => {
        if (left-- > 0) return void ours.resolve(new Array(1 << 13).fill(left)).then(next);
        // Measured here, since `wait` drops all reactions when it returns.
        after = heldBytes();
        resolve();
      };
      next();
    });
  wait(stream, () => new Error("nothing settles the promise"));
  // All chunks together have 62 MiB.
  assert.ok(after - before < 4 << 20, `${after - before} bytes are held`);
});

test("reactions run in the order in which they became ready", () => {
  const order = [];
  const note = (name) => () => void order.push(name);
  const work = () => {
    const first = ours.resolve().then(note("a"));
    ours.resolve().then(note("b")).then(note("d"));
    return first.then(note("c")).then(note("e"));
  };
  wait(work, () => new Error("nothing settles the promise"));
  assert.deepEqual(order, ["a", "b", "c", "d", "e"]);
});

test("a job that leaves work behind is reported, and no other job", () => {
  const stuck = () => new Error("stuck");
  const isReported = (work) => {
    let reports = 0;
    try {
      wait(work, stuck, () => (reports += 1));
    } catch (error) {
      if (error.message !== "stuck" && error.message !== "late") throw error;
    }
    return reports === 1;
  };
  const done = ours.resolve();
  const never = new ours(() => {});
  const left = {
    timer: () => (start(() => {}, 60_000), done),
    "wait for the host": () => (whenReady({ [Symbol.dispose]() {} }, () => {}), done),
    interval: () => (repeat(() => {}, 60_000), done),
    "promise that nothing settles": () => never,
    "timer that throws": () => {
      start(() => {
        throw new Error("late");
      });
      return never;
    },
  };
  for (const [name, work] of Object.entries(left)) assert.ok(isReported(work), name);
  const tidy = {
    value: () => done,
    failure: () => ours.reject(new Error("stuck")),
    "timer that has run": () => new ours((resolve) => start(resolve, 1)),
    "timer that was stopped": () => (stop(start(() => {}, 60_000)), done),
    "deadline of faster work": () => (Signal.timeout(60_000), done),
  };
  for (const [name, work] of Object.entries(tidy)) assert.ok(!isReported(work), name);
});
