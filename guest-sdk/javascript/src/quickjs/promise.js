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
