// The event loop: the queue of ready reactions, and the timers. `wait` runs both until a promise
// settles.
//
// An export of a component is a plain call, and QuickJS runs no promises after it. So the build
// rewrites `async` functions to use the global `Promise`, and promise.js replaces that by a class
// whose reactions are queued here. A promise of QuickJS itself would never settle; no code in the
// bundle creates one.

import { subscribeDuration } from "wasi:clocks/monotonic-clock@0.2.0";

import { Failed } from "../errors.js";
import { failure } from "../handler.js";

const ready = [];
const timers = new Map();
let lastTimer = 0;

const set =
  (repeats) =>
  (callback, delay = 0, ...args) => {
    const every = repeats ? Math.max(delay, 1) : undefined;
    timers.set(++lastTimer, { at: performance.now() + delay, every, run: () => callback(...args) });
    return lastTimer;
  };
const clear = (timer) => void timers.delete(timer);
globalThis.setTimeout = set(false);
globalThis.setInterval = set(true);
globalThis.clearTimeout = globalThis.clearInterval = clear;
globalThis.queueMicrotask = (reaction) => void ready.push(reaction);

/**
 * Runs ready reactions and due timers until `promise` settles; returns or throws its value. If
 * nothing is left to run, it throws an error, as `lower` converts it.
 */
export function wait(promise, lower) {
  let settled;
  promise.then(
    (value) => (settled = { value }),
    (error) => (settled = { error }),
  );
  try {
    while (!settled) {
      if (ready.length) runReady();
      else if (timers.size) runNextTimer();
      else throw new Failed("the handler waits for a promise that nothing settles");
    }
  } catch (error) {
    // This also catches the errors of a timer's callback.
    throw lower(failure(error, console.error));
  } finally {
    // Drops promises that were not awaited: the instance may get another job.
    ready.length = 0;
    timers.clear();
  }
  if ("error" in settled) throw settled.error;
  return settled.value;
}

function runReady() {
  // By index, since a reaction can add more.
  for (let i = 0; i < ready.length; i++) ready[i]();
  ready.length = 0;
}

function runNextTimer() {
  let next;
  for (const [id, timer] of timers) if (!next || timer.at < next.timer.at) next = { id, timer };
  const delay = next.timer.at - performance.now();
  if (delay > 0) {
    const due = subscribeDuration(Math.ceil(delay * 1e6));
    due.block();
    due[Symbol.dispose]();
  }
  if (next.timer.every) next.timer.at += next.timer.every;
  else timers.delete(next.id);
  next.timer.run();
}
