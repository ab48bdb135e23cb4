// Connects the component's imports and exports to the SDK. Only the build uses this module, because
// the modules `gristmill:…` and `wasi:…` exist only there.
//
// The handler's module is loaded once, when the component is built. Each instance starts from a
// snapshot of the engine made after that.

import * as wit from "gristmill:handler/context@0.1.0";
import { send } from "gristmill:handler/http@0.1.0";
import { write } from "gristmill:handler/log@0.1.0";
import { emit, progress } from "gristmill:handler/output@0.1.0";
import { getEnvironment } from "wasi:cli/environment@0.2.0";

import { Context } from "./context.js";
import { Cancelled, EmitError, InvalidInput } from "./errors.js";
import { describe, failure, handle } from "./handler.js";
import { HttpError, Response } from "./http.js";
import { encode } from "./values.js";

const host = {
  endpoint: wit.endpoint,
  attempt: wit.attempt,
  traceParent: () => wit.traceParent() ?? undefined,
  // One engine returns a number, the other a bigint.
  remainingMs: () => Number(wit.remainingMs()),
  cancelled: wit.cancelled,
  s3Config: () => wit.s3() ?? undefined,
  retire: wit.retire,
  emit: (output, metrics) => {
    try {
      emit(output.toWellFormed(), metrics?.toWellFormed() ?? null);
    } catch (error) {
      throw lift(EmitError, error, "quota-exceeded");
    }
  },
  progress: (value) => progress(value.toWellFormed()),
  log: write,
  httpSend: ({ method, url, headers = [], body = new Uint8Array(), timeout }) => {
    // QuickJS cannot pass a larger number.
    const timeoutMs =
      timeout === undefined ? null : Math.min(Math.max(Math.ceil(timeout), 0), 2 ** 31 - 1);
    headers = headers.map((pair) => pair.map((text) => text.toWellFormed()));
    try {
      const answer = send({ method, url: String(url).toWellFormed(), headers, body, timeoutMs });
      return new Response(answer.status, Uint8Array.from(answer.body), answer.headers);
    } catch (error) {
      throw lift(HttpError, error, "too-large");
    }
  },
};

/** The host's error as an error of the SDK; `limit` is the kind that has a number of bytes. */
function lift(Kind, error, limit) {
  if (!error?.payload) return error;
  const { tag, val } = error.payload;
  return tag === limit ? new Kind(tag, undefined, Number(val)) : new Kind(tag, val);
}

let begun = false;

/** Runs at the first call: while the component is built there is no environment and no log. */
function begin() {
  if (begun) return;
  begun = true;
  Object.assign(process.env, Object.fromEntries(getEnvironment()));
}

/** The component's exports. `wait` turns a promise into a value that the engine can return. */
export function component(module, wait) {
  const settle = (promise, lower) => {
    const lowered = promise.catch((error) => {
      throw lower(error);
    });
    return wait(lowered, lower);
  };
  return {
    run: {
      handle: ({ id, input }) => {
        begin();
        return settle(handle(module, new Context(id, host), input), lowerError);
      },
    },
    lifecycle: {
      init: () => {
        begin();
        return settle(init(module), ({ message }) => message.toWellFormed());
      },
    },
  };
}

async function init(module) {
  try {
    await module.init();
  } catch (error) {
    throw failure(error, (lines) => write("error", lines.toWellFormed()));
  }
}

function lowerError(error) {
  if (error instanceof Cancelled) return { tag: "cancelled" };
  let details = null;
  if (error.details !== undefined) {
    try {
      details = encode(error.details);
    } catch (why) {
      details = encode(`details have no JSON form: ${why.message}`);
    }
  }
  return {
    tag: error instanceof InvalidInput ? "invalid-input" : "failed",
    val: { message: error.message.toWellFormed(), details },
  };
}

globalThis.process ??= {};
process.env ??= {};

const LEVELS = {
  trace: "trace",
  debug: "debug",
  log: "info",
  info: "info",
  warn: "warn",
  error: "error",
};
globalThis.console ??= {};
for (const [method, level] of Object.entries(LEVELS)) {
  console[method] = (...values) => {
    // While the component is built there is no log.
    if (begun) write(level, values.map(show).join(" ").toWellFormed());
  };
}

function show(value) {
  if (typeof value === "object" && value !== null && !(value instanceof Error)) {
    try {
      return JSON.stringify(value);
    } catch {
      return String(value);
    }
  }
  return value instanceof Error ? describe(value) : String(value);
}
