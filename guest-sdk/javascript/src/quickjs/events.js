// `Event`, `EventTarget`, `AbortController` and `AbortSignal`. There is no tree of targets, so events
// neither bubble nor are captured.

import "./promise.js";

import { setDeadline } from "./event-loop.js";

/** The events whose further listeners do not run. */
const stopped = new WeakSet();

class Event {
  #canceled = false;
  target = null;
  currentTarget = null;
  timeStamp = performance.now();

  constructor(type, { cancelable = false } = {}) {
    this.type = String(type);
    this.cancelable = Boolean(cancelable);
  }

  get defaultPrevented() {
    return this.#canceled;
  }

  preventDefault() {
    if (this.cancelable) this.#canceled = true;
  }

  stopPropagation() {}

  stopImmediatePropagation() {
    stopped.add(this);
  }
}

class EventTarget {
  /** By type: the listeners in the order in which they were added. */
  #listeners = new Map();

  addEventListener(type, listener, options = {}) {
    if (!listener) return;
    const { once = false, signal } = typeof options === "object" ? options : {};
    if (signal?.aborted) return;
    const listeners = this.#listeners.get(String(type)) ?? [];
    if (listeners.some((other) => other.listener === listener)) return;
    this.#listeners.set(String(type), [...listeners, { listener, once }]);
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener), {
      once: true,
    });
  }

  removeEventListener(type, listener) {
    const listeners = this.#listeners.get(String(type)) ?? [];
    this.#listeners.set(
      String(type),
      listeners.filter((other) => other.listener !== listener),
    );
  }

  dispatchEvent(event) {
    if (!(event instanceof Event)) throw new TypeError("dispatchEvent needs an Event");
    event.target = event.currentTarget = this;
    const own = this[`on${event.type}`];
    const listeners = [...(this.#listeners.get(event.type) ?? [])];
    if (typeof own === "function") listeners.unshift({ listener: own });
    for (const { listener, once } of listeners) {
      if (stopped.has(event)) break;
      if (once) this.removeEventListener(event.type, listener);
      try {
        if (typeof listener === "function") listener.call(this, event);
        else listener.handleEvent(event);
      } catch (error) {
        // As everywhere, the other listeners still run.
        console.error("an event listener failed:", error);
      }
    }
    event.currentTarget = null;
    return !event.defaultPrevented;
  }
}

/** Only this module makes signals. */
const MAKE = Symbol("make a signal");

/** Aborts a signal; `AbortSignal` sets it, since only the class sees its private fields. */
let abort;

class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  onabort = null;

  constructor(key) {
    if (key !== MAKE) throw new TypeError("a signal comes from an AbortController");
    super();
  }

  get aborted() {
    return this.#aborted;
  }

  get reason() {
    return this.#reason;
  }

  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }

  static abort(reason) {
    const signal = new AbortSignal(MAKE);
    abort(signal, reason);
    return signal;
  }

  static timeout(milliseconds) {
    if (!(milliseconds >= 0)) {
      throw new TypeError(`expected milliseconds, got ${milliseconds}`);
    }
    const signal = new AbortSignal(MAKE);
    setDeadline(
      () => abort(signal, new DOMException("the time is over", "TimeoutError")),
      milliseconds,
    );
    return signal;
  }

  static any(signals) {
    const sources = [...signals];
    const signal = new AbortSignal(MAKE);
    const first = sources.find((source) => source.aborted);
    if (first) abort(signal, first.reason);
    else {
      for (const source of sources) {
        source.addEventListener("abort", () => abort(signal, source.reason), { once: true });
      }
    }
    return signal;
  }

  static {
    abort = (signal, reason = new DOMException("the operation was aborted", "AbortError")) => {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason;
      signal.dispatchEvent(new Event("abort"));
    };
  }
}

class AbortController {
  #signal = new AbortSignal(MAKE);

  get signal() {
    return this.#signal;
  }

  abort(reason) {
    abort(this.#signal, reason);
  }
}

Object.assign(globalThis, { Event, EventTarget, AbortController, AbortSignal });
