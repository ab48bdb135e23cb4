// The event loop: the queue of ready reactions, the timers, and the waits for the host. `wait` runs
// them until a promise settles.
//
// An export of a component is a plain call, and QuickJS runs no promises after it. So the build
// rewrites `async` functions to use the global `Promise`, and promise.js replaces that by a class
// whose reactions are queued here. A promise of QuickJS itself would never settle: promise.js also
// replaces the functions of the engine that would make one.

import { subscribeDuration } from "gwsi:clocks/monotonic-clock@0.2.0";
import { poll } from "gwsi:io/poll@0.2.0";

/** The longest wait of one call, in milliseconds; a longer timer waits several times. */
const WAIT_MS_MAX = 2 ** 31;

let ready = [];
const timers = new Map();
/** The pollables that something waits for, each with its reaction. */
const waits = new Map();
/** Functions that return what a job holds of the host; they run when the job ends. */
const cleanups = new Set();
let lastTimer = 0;

const set =
  ({ repeats = false, isDeadline = false }) =>
  (callback, delay = 0, ...args) => {
    if (typeof callback !== "function") {
      throw new TypeError(`a timer needs a function, not ${typeof callback}`);
    }
    // As everywhere: a text is read as a number, and what is no number is 0.
    const after = Math.min(Math.max(Number(delay) || 0, 0), Number.MAX_SAFE_INTEGER);
    const every = repeats ? Math.max(after, 1) : undefined;
    const at = performance.now() + after;
    timers.set(++lastTimer, { at, every, isDeadline, run: () => callback(...args) });
    return lastTimer;
  };
const clear = (timer) => void timers.delete(Number(timer));
globalThis.setTimeout = set({});
globalThis.setInterval = set({ repeats: true });
/** `setTimeout` for a deadline of other work: a job may leave it behind when that work was faster. */
export const setDeadline = set({ isDeadline: true });
globalThis.clearTimeout = globalThis.clearInterval = clear;
globalThis.queueMicrotask = (reaction) => void ready.push(reaction);

/** Calls `reaction` once the host has made the pollable ready; the pollable is dropped then. */
export function whenReady(pollable, reaction) {
  waits.set(pollable, reaction);
}

/** Ends a wait without its reaction. */
export function stopWaiting(pollable) {
  if (waits.delete(pollable)) pollable[Symbol.dispose]();
}

/** Runs `cleanup` when the job ends, unless the returned function ran before. */
export function atEnd(cleanup) {
  cleanups.add(cleanup);
  return () => void cleanups.delete(cleanup);
}

/**
 * Calls `work`, and runs ready reactions, due timers and finished waits until its promise settles;
 * returns or throws its value. It throws the result of `stuck` if nothing is left to run, and any
 * error of a timer.
 *
 * It calls `abandoned` if it drops work that has not ended: a promise that a module keeps may wait for
 * this work, and would then stay pending in every later job of the instance.
 */
export function wait(work, stuck, abandoned = () => {}) {
  let settled;
  try {
    work().then(
      (value) => (settled = { value }),
      (error) => (settled = { error }),
    );
    while (!settled) {
      if (ready.length) runReady();
      else if (timers.size || waits.size) waitForHost();
      else throw stuck();
    }
  } finally {
    // Without a result the job ended in the middle of a reaction, or with a promise that nothing settles.
    if (!settled || waits.size || hasTimers()) abandoned();
    // Drops everything that was not awaited: the instance may get another job.
    if (waits.size || cleanups.size) endWaits();
    ready = [];
    timers.clear();
  }
  if ("error" in settled) throw settled.error;
  return settled.value;
}

function endWaits() {
  for (const pollable of waits.keys()) pollable[Symbol.dispose]();
  waits.clear();
  for (const cleanup of cleanups) cleanup();
  cleanups.clear();
}

function hasTimers() {
  for (const { isDeadline } of timers.values()) if (!isDeadline) return true;
  return false;
}

/**
 * Runs reactions until there are none, also those that reactions add. Reactions that have run are
 * dropped at once: a stream that never waits for the host keeps this function busy until its end, and
 * the reactions hold its chunks.
 */
function runReady() {
  while (ready.length) {
    const batch = ready;
    ready = [];
    for (let i = 0; i < batch.length; i++) {
      const reaction = batch[i];
      batch[i] = undefined;
      reaction();
    }
  }
}

/** Waits for the first of the next timer and all pollables, and runs what is due. */
function waitForHost() {
  let next;
  for (const [id, timer] of timers) if (!next || timer.at < next.timer.at) next = { id, timer };
  const delay = next ? next.timer.at - performance.now() : Infinity;
  if (delay > 0 || waits.size) pollAll(delay);
  if (next && next.timer.at <= performance.now() && timers.has(next.id)) runTimer(next);
}

function pollAll(delay) {
  const pollables = [...waits.keys()];
  const ends = delay < Infinity;
  const clock =
    ends && subscribeDuration(Math.ceil(Math.min(Math.max(delay, 0), WAIT_MS_MAX) * 1e6));
  const due = poll(ends ? [...pollables, clock] : pollables);
  if (ends) clock[Symbol.dispose]();
  for (const index of due) {
    const pollable = pollables[index];
    const reaction = waits.get(pollable);
    // The clock has none, and an earlier reaction may have ended the wait.
    if (!reaction) continue;
    stopWaiting(pollable);
    reaction();
  }
}

function runTimer({ id, timer }) {
  if (timer.every) timer.at += timer.every;
  else timers.delete(id);
  timer.run();
}
