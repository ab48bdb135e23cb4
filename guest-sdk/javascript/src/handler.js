// Turns a plain function into a component's export.

import { runningAs } from "./context.js";
import { CallError, EmitError, Failed, GristmillError, InvalidInput } from "./errors.js";
import { HttpError } from "./http.js";
import { describe, issuesOf, messageOf, textOf } from "./messages.js";
import { encode } from "./values.js";

/** One element of a job's stream, with metrics; a generator yields it. */
export class Chunk {
  constructor(output, metrics) {
    this.output = output;
    this.metrics = metrics;
  }
}

/** Why a module without a handler is refused: by the build, and by tests. */
export const NO_HANDLER =
  "there is no handler: export a function as default or as `handler`, or call serve(handler); for HTTP, export an application with a function `fetch` as default";

/** Why an option `validate` is refused. */
const NO_VALIDATION =
  "`validate` is a function from the input to the checked input, or a schema of a library with Standard Schema, such as zod 3.24, Valibot 1 or ArkType 2";

const HANDLER = Symbol("gristmill handler");
/** Of a context: whether the job is a call of OpenAI's API, which may have an error as its output. */
const IS_OPENAI = Symbol("gristmill openai");
let served;

/** A handler `(ctx, input) => output`. Throws for a `validate` that could check no job. */
export function handler(work, { validate } = {}) {
  if (validate && typeof validate !== "function" && !isSchema(validate)) {
    throw new TypeError(NO_VALIDATION);
  }
  return mark((...args) => work(...args), {
    call: async (ctx, text) => work(ctx, await check(JSON.parse(text), validate)),
  });
}

/** Makes `(job, ctx) => output`, or the result of `handler`, the handler of this component. */
export function serve(work) {
  served = work;
  return work;
}

/** Makes `(ctx, text) => text` the handler of this component. */
export function serveRaw(work) {
  return serve(mark((...args) => work(...args), { call: work, encode: raw }));
}

/** The function that handles the jobs of a module: what `serve` got, or an export. */
export function servedBy(module) {
  return served ?? module.default ?? module.handler;
}

/** Handles one job of a handler module: JSON text in, JSON text out. Throws a `GristmillError`. */
export function handle(module, ctx, text) {
  return run(of(servedBy(module)), ctx, text);
}

/** Runs the result of `of`. The stack of any error that is not the SDK's goes to the job's log. */
export async function run(handler, ctx, text) {
  let output;
  try {
    output = await runningAs(ctx, async () => outcome(handler, ctx, await handler.call(ctx, text)));
  } catch (error) {
    throw failure(error, (lines) => ctx.error(lines));
  }
  try {
    return (handler.encode ?? encode)(output);
  } catch (error) {
    throw new Failed(`output has no JSON form: ${error.message}`);
  }
}

/** The error that a job ends with. `log` receives the stack of errors other than the SDK's own. */
export function failure(error, log) {
  if (error instanceof GristmillError) return error;
  try {
    log(describe(error));
    // The message of these is enough without the error's name.
    const isOwn = [CallError, EmitError, HttpError].some((Kind) => error instanceof Kind);
    return new Failed(isOwn ? error.message : messageOf(error));
  } catch (why) {
    // Such as a getter that throws.
    return new Failed(`the handler threw an error that cannot be shown: ${typeof why}`);
  }
}

/** The handler of a function. */
export function of(work) {
  if (typeof work !== "function") {
    throw new TypeError(NO_HANDLER);
  }
  return work[HANDLER] ?? forJob(work);
}

/** A handler `(job, ctx)`, by the conventions of the hosted services. */
function forJob(work) {
  const call = (ctx, text) => {
    const job = { id: ctx.jobId, input: JSON.parse(text) };
    ctx[IS_OPENAI] = typeof job.input === "object" && "openai_route" in (job.input ?? {});
    const s3 = ctx.s3Config;
    if (s3) job.s3Config = s3;
    return work(job, ctx);
  };
  return { call, conclude };
}

function conclude(ctx, value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  if ("refresh_worker" in value) {
    const { refresh_worker, ...rest } = value;
    if (refresh_worker) ctx.retire();
    value = rest;
  }
  const { error, ...rest } = value;
  const isDocument = typeof error === "object" && !(error instanceof Error || Array.isArray(error));
  if (ctx[IS_OPENAI] && isDocument) return value;
  if (error && Object.keys(rest).length > 0) ctx.progress(rest);
  // As if it had been thrown: an error has no JSON form, and its stack belongs into the log.
  if (error instanceof Error) throw error;
  if (error) throw new Failed(textOf(error));
  return value;
}

async function outcome({ conclude = (_ctx, value) => value }, ctx, result) {
  const chunks = chunksOf(result);
  if (!chunks) return conclude(ctx, result);
  // An iterator that has ended, or has thrown, is not told to end.
  let isOpen = false;
  try {
    while (true) {
      const { value, done } = await chunks.next();
      if (done) return value === undefined ? null : conclude(ctx, value);
      isOpen = true;
      if (value instanceof Chunk) ctx.emit(value.output, value.metrics);
      else ctx.emit(conclude(ctx, value));
      ctx.checkCancelled();
      isOpen = false;
    }
  } finally {
    // It may tidy up. Only generators always have this function.
    if (isOpen) await chunks.return?.();
  }
}

/** The iterator of a generator or of any async iterable, such as a `ReadableStream`. */
function chunksOf(value) {
  // The build rewrites async generators, which then have no tag of their own.
  if (typeof value?.[Symbol.asyncIterator] === "function") return value[Symbol.asyncIterator]();
  return Object.prototype.toString.call(value) === "[object Generator]" ? value : undefined;
}

async function check(input, validate) {
  if (!validate) return input;
  try {
    // Not outside: a validation that rejects refuses the job, as one that throws.
    if (!isSchema(validate)) return await validate(input);
    const result = await validate["~standard"].validate(input);
    if (result.issues) throw new InvalidInput(issuesOf(result) ?? "the input is invalid");
    return result.value;
  } catch (error) {
    throw error instanceof GristmillError
      ? error
      : new InvalidInput(issuesOf(error) ?? String(error?.message ?? error));
  }
}

/** Whether this is a schema by https://standardschema.dev; those of ArkType are functions too. */
function isSchema(value) {
  return typeof value?.["~standard"]?.validate === "function";
}

function mark(work, handler) {
  return Object.assign(work, { [HANDLER]: handler });
}

function raw(value) {
  if (typeof value !== "string")
    throw new TypeError(`a raw handler returns text, not ${typeof value}`);
  return value.toWellFormed();
}
