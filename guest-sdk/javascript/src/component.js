// Connects the component's imports and exports to the SDK. Only the build uses this module, because
// the modules `gristmill:…` and `wasi:…` exist only there.
//
// The handler's module is loaded once, when the component is built. Each instance starts from a
// snapshot of the engine made after that.

import * as wit from "gristmill:handler/context@0.1.0";
import { call, submit } from "gristmill:handler/endpoints@0.1.0";
import { send } from "gristmill:handler/http@0.1.0";
import { write } from "gristmill:handler/log@0.1.0";
import { emit, progress } from "gristmill:handler/output@0.1.0";
import { getEnvironment } from "wasi:cli/environment@0.2.0";

import { install as installConsole } from "./console.js";
import { Context, runningAs } from "./context.js";
import { CallError, Cancelled, EmitError, Failed, InvalidInput } from "./errors.js";
import { failure, handle, of, servedBy } from "./handler.js";
import { HttpError, Response } from "./http.js";
import { ANSWERS_NO_REQUEST, ANSWERS_REQUESTS, fetchOf, respond } from "./server.js";
import { readableText } from "./stack.js";
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
  retryAfter: wit.retryAfter,
  emit: (output, metrics) => {
    try {
      emit(output.toWellFormed(), metrics?.toWellFormed() ?? null);
    } catch (error) {
      throw lift(EmitError, error, "quota-exceeded");
    }
  },
  progress: (value) => progress(value.toWellFormed()),
  log: (level, message) => write(level, readableText(message)),
  httpSend: ({ method, url, headers = [], body = new Uint8Array(), timeout }) => {
    if (!(body instanceof Uint8Array)) {
      throw new TypeError("the body of a request is a string or a Uint8Array");
    }
    const request = {
      method: String(method).toWellFormed(),
      url: String(url).toWellFormed(),
      headers: headers.map((pair) => pair.map((text) => String(text).toWellFormed())),
      body,
      // QuickJS cannot pass a larger number.
      timeoutMs:
        timeout === undefined
          ? null
          : Math.min(Math.max(Math.ceil(Number(timeout)) || 0, 0), 2 ** 31 - 1),
    };
    try {
      const answer = send(request);
      return new Response(answer.status, Uint8Array.from(answer.body), answer.headers);
    } catch (error) {
      throw lift(HttpError, error, "too-large");
    }
  },
  submit: (endpoint, input, key) => calling(submit, endpoint, input, key),
  call: (endpoint, input, key) => calling(call, endpoint, input, key),
};

function calling(work, endpoint, input, key) {
  try {
    return work(endpoint.toWellFormed(), input.toWellFormed(), key?.toWellFormed() ?? null);
  } catch (error) {
    if (!error?.payload) throw error;
    const { tag, val } = error.payload;
    throw tag === "failed" ? new CallError(tag, undefined, val) : new CallError(tag, val);
  }
}

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
  // The module may have kept the recorder: it passes everything on.
  Object.assign(variables, Object.fromEntries(getEnvironment()));
  process.env = variables;
}

const log = (text) => host.log("error", text.toWellFormed());

/**
 * The component's exports. `settle` calls a function and waits for its promise as the engine does
 * it; it converts an error by its second argument, and makes one by the third if nothing will settle
 * the promise. It calls the fourth if the function leaves work behind that has not ended.
 */
export function component(module, settle) {
  if (fetchOf(module)) throw new Error(ANSWERS_REQUESTS);
  // The build fails here if there is no handler.
  of(servedBy(module));
  return {
    run: {
      handle: ({ id, input }) => {
        begin();
        const work = () => handle(module, new Context(id, host), input);
        // A module may keep a promise of that work, which would never settle in a later job.
        return settle(work, (error) => lowerError(failure(error, log)), stuck, wit.retire);
      },
    },
    lifecycle: lifecycle(module, settle),
  };
}

const stuck = () => new Failed("the handler waits for a promise that nothing settles");

function lifecycle(module, settle) {
  return {
    init: () => {
      begin();
      const work = async () => module.init();
      const lower = (error) => failure(error, log).message.toWellFormed();
      return settle(work, lower, stuck, () => {});
    },
  };
}

/**
 * The exports of a component that answers requests. `settle` is as above; `answer` is that of
 * quickjs/server.js.
 */
export function server(module, settle, answer) {
  const fetch = fetchOf(module);
  if (!fetch) throw new Error(ANSWERS_NO_REQUEST);
  const call = (request) => respond(fetch, request, process.env, log);
  const broken = (error) => void failure(error, log);
  return {
    incomingHandler: {
      handle: (request, outparam) => {
        begin();
        const context = new Context(undefined, host);
        const work = () => runningAs(context, () => answer(request, outparam, call, broken));
        try {
          settle(work, (error) => error, stuck, wit.retire);
        } catch (error) {
          // The export has no result for an error: a request without an answer has failed.
          log(failure(error, log).message);
        }
      },
    },
    lifecycle: lifecycle(module, settle),
  };
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
    val: { message: readableText(String(error.message)).toWellFormed(), details },
  };
}

globalThis.process ??= {};
const variables = process.env ?? {};

/**
 * The reads of variables while the component is built: their names and stacks. The build reads and
 * deletes the global.
 */
const reads = [];
globalThis.gristmillReads = reads;

process.env = new Proxy(variables, {
  get: (target, name, receiver) => {
    if (!begun && typeof name === "string" && !Object.hasOwn(target, name)) {
      reads.push([name, new Error().stack]);
    }
    return Reflect.get(target, name, receiver);
  },
});

// While the component is built there is no log.
installConsole((level, text) => begun && host.log(level, text.toWellFormed()));
