// The global `Promise`, on our own event loop, and the functions of the engine that return promises.

import "./event-loop.js";

import Promise from "promise-polyfill";

Promise._immediateFn = queueMicrotask;
Promise._unhandledRejectionFn = (reason) => console.warn("unhandled rejection:", reason);

/** Adds a function as the engine does: writable, but not listed by `for…in`. */
const define = (target, name, value) =>
  Object.defineProperty(target, name, { value, writable: true, configurable: true });

define(Promise, "withResolvers", () => {
  const resolvers = {};
  resolvers.promise = new Promise((resolve, reject) =>
    Object.assign(resolvers, { resolve, reject }),
  );
  return resolvers;
});
define(Promise, "try", (work, ...args) => new Promise((resolve) => resolve(work(...args))));
define(Promise.prototype, Symbol.toStringTag, "Promise");

// The functions of promise-polyfill accept only arrays, and its `any` rejects with an error that is
// no `AggregateError` of the language.
define(Promise, "all", function all(items) {
  return new this((resolve, reject) =>
    collect(this, items, (promise, store) => promise.then(store, reject), resolve),
  );
});
define(Promise, "allSettled", function allSettled(items) {
  const watch = (promise, store) =>
    promise.then(
      (value) => store({ status: "fulfilled", value }),
      (reason) => store({ status: "rejected", reason }),
    );
  return new this((resolve) => collect(this, items, watch, resolve));
});
define(Promise, "any", function any(items) {
  return new this((resolve, reject) =>
    collect(
      this,
      items,
      (promise, store) => promise.then(resolve, store),
      (errors) => reject(new AggregateError(errors, "All promises were rejected")),
    ),
  );
});
define(Promise, "race", function race(items) {
  return new this((resolve, reject) => {
    for (const item of items) this.resolve(item).then(resolve, reject);
  });
});

/**
 * Calls `watch` for each item of an iterable, with a promise of the item and a function that stores
 * the item's result. Calls `done` with the results, in the order of the items, once all are stored.
 */
function collect(Kind, items, watch, done) {
  const results = [];
  // One more than the results that are missing, until the iterable has ended.
  let missing = 1;
  const countDown = () => {
    missing -= 1;
    if (missing === 0) done(results);
  };
  for (const item of items) {
    const index = results.push(undefined) - 1;
    missing += 1;
    watch(Kind.resolve(item), (result) => {
      results[index] = result;
      countDown();
    });
  }
  countDown();
}

globalThis.Promise = Promise;

// The engine's own one returns a promise of the engine, which never settles here.
define(Array, "fromAsync", async function fromAsync(items, map, thisArg) {
  if (map !== undefined && typeof map !== "function") {
    throw new TypeError("Array.fromAsync: the second argument is not a function");
  }
  const Result = typeof this === "function" ? this : Array;
  const mapped = (value, index) => (map ? map.call(thisArg, value, index) : value);
  let length = 0;
  let result;
  if (items[Symbol.asyncIterator] || items[Symbol.iterator]) {
    result = new Result();
    for await (const item of items) {
      result[length] = await mapped(item, length);
      length += 1;
    }
  } else {
    result = new Result(items.length);
    for (; length < items.length; length += 1) {
      result[length] = await mapped(await items[length], length);
    }
  }
  result.length = length;
  return result;
});
