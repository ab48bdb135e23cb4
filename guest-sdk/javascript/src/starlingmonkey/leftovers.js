// Counts the timers, requests and reads of a job that have not ended. StarlingMonkey keeps them for the
// next call of the instance, which is another job: their reactions would run in it.
//
// Imported before the handler's module, which may keep the functions that are replaced here.

const timers = new Set();
let promises = 0;

/** Whether something of the job has not ended. */
export const isLeft = () => timers.size > 0 || promises > 0;

function countTimers(start, stop, isOnce) {
  const [begin, end] = [globalThis[start], globalThis[stop]];
  globalThis[start] = (callback, ...rest) => {
    if (typeof callback !== "function") return begin(callback, ...rest);
    const run = (...args) => {
      if (isOnce) timers.delete(timer);
      return callback(...args);
    };
    const timer = begin(run, ...rest);
    timers.add(timer);
    return timer;
  };
  return (timer) => {
    timers.delete(timer);
    return end(timer);
  };
}

// As everywhere, each of the two functions stops timers of both kinds.
const stopTimeout = countTimers("setTimeout", "clearTimeout", true);
const stopInterval = countTimers("setInterval", "clearInterval", false);
globalThis.clearTimeout = stopTimeout;
globalThis.clearInterval = stopInterval;

/** Counts the promises of a function until they settle. */
function countPromises(target, name) {
  const call = target?.[name];
  if (typeof call !== "function") return;
  const counted = function (...args) {
    const promise = call.apply(this, args);
    promises += 1;
    const end = () => void (promises -= 1);
    promise.then(end, end);
    return promise;
  };
  Object.defineProperty(target, name, { value: counted, writable: true, configurable: true });
}

countPromises(globalThis, "fetch");
for (const Body of [globalThis.Request, globalThis.Response]) {
  for (const name of ["arrayBuffer", "blob", "formData", "json", "text"]) {
    countPromises(Body?.prototype, name);
  }
}
for (const Reader of [globalThis.ReadableStreamDefaultReader, globalThis.ReadableStreamBYOBReader]) {
  countPromises(Reader?.prototype, "read");
}
countPromises(globalThis.ReadableStream?.prototype, "pipeTo");
