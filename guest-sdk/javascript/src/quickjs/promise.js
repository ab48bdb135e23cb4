// The global `Promise`, on our own event loop.

import "./event-loop.js";

import Promise from "promise-polyfill";

Promise._immediateFn = queueMicrotask;
Promise._unhandledRejectionFn = (reason) => console.warn("unhandled rejection:", reason);
Promise.withResolvers = () => {
  const resolvers = {};
  resolvers.promise = new Promise((resolve, reject) =>
    Object.assign(resolvers, { resolve, reject }),
  );
  return resolvers;
};
globalThis.Promise = Promise;
