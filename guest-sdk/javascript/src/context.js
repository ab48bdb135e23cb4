// The context of a job: its properties, and calls with which a handler sends data while it runs.

import { CallError, Cancelled, EmitError } from "./errors.js";
import { encode } from "./values.js";

const LEVELS = ["trace", "debug", "info", "warn", "error"];

/**
 * The running attempt: its properties, and all calls from the handler to the host.
 *
 * It is implemented by a `host`: the sandbox's imports, or a test's fake. JSON is passed as text.
 */
export class Context {
  #jobId;
  #host;

  constructor(jobId, host) {
    this.#jobId = jobId;
    this.#host = host;
  }

  get jobId() {
    return this.#jobId;
  }

  get endpoint() {
    return this.#host.endpoint();
  }

  get attempt() {
    return this.#host.attempt();
  }

  get remaining() {
    return this.#host.remainingMs();
  }

  get cancelled() {
    return this.#host.cancelled();
  }

  checkCancelled() {
    if (this.cancelled) throw new Cancelled();
  }

  get s3Config() {
    return this.#host.s3Config();
  }

  get traceParent() {
    return this.#host.traceParent();
  }

  retire() {
    this.#host.retire();
  }

  retryAfter(ms) {
    if (typeof ms !== "number" || Number.isNaN(ms)) {
      throw new TypeError(`ms: expected a number of milliseconds, got ${String(ms)}`);
    }
    // QuickJS cannot pass a larger number.
    this.#host.retryAfter(Math.min(Math.max(Math.round(ms), 0), 2 ** 31 - 1));
  }

  neverRetry() {
    this.#host.retryAfter(null);
  }

  emit(output, metrics) {
    let texts;
    try {
      texts = [encode(output), isAbsent(metrics) ? undefined : encode(metrics)];
    } catch (error) {
      throw new EmitError("invalid-json", error.message);
    }
    this.#host.emit(...texts);
  }

  progress(value) {
    let text;
    try {
      text = encode(value);
    } catch (error) {
      return this.warn(`progress value has no JSON form: ${error.message}`);
    }
    this.#host.progress(text);
  }

  log(level, message) {
    if (!LEVELS.includes(level)) {
      throw new TypeError(`level: expected one of ${LEVELS.join(", ")}, got ${String(level)}`);
    }
    // A lone surrogate cannot be passed to the host.
    this.#host.log(level, String(message).toWellFormed());
  }

  trace(message) {
    this.log("trace", message);
  }

  debug(message) {
    this.log("debug", message);
  }

  info(message) {
    this.log("info", message);
  }

  warn(message) {
    this.log("warn", message);
  }

  error(message) {
    this.log("error", message);
  }

  httpSend(request) {
    return this.#host.httpSend({ ...request, timeout: request.timeout ?? undefined });
  }

  // Asynchronous, although this host answers before it returns: so a later host can run calls at once.
  async submit(endpoint, input, { idempotencyKey } = {}) {
    return this.#host.submit(...callTexts(endpoint, input, idempotencyKey));
  }

  async call(endpoint, input, { idempotencyKey } = {}) {
    return JSON.parse(this.#host.call(...callTexts(endpoint, input, idempotencyKey)));
  }
}

function callTexts(endpoint, input, key) {
  let text;
  try {
    text = encode(input);
  } catch (error) {
    throw new CallError("invalid-request", `the input has no JSON form: ${error.message}`);
  }
  return [String(endpoint), text, isAbsent(key) ? undefined : String(key)];
}

/** Null is the same as no value: callers pass on what JSON or a database has. */
const isAbsent = (value) => value === undefined || value === null;

let running;

/** The context of the running job, for code that does not have it as an argument. */
export function context() {
  if (!running) throw new Error("no job is running: call context() in a handler");
  return running;
}

/** Makes `context()` return `ctx` while `work` runs. */
export async function runningAs(ctx, work) {
  const before = running;
  running = ctx;
  try {
    return await work();
  } finally {
    running = before;
  }
}
