/**
 * A fake host, so that handlers run in a plain `node --test`. It has no timing: `emit` never waits,
 * every progress value is kept, and nothing stops a handler that does not return.
 */

import { Context } from "./index.js";
import type { CallError, Handler, JobHandler, Level, S3Config, http } from "./index.js";

type Answer = http.Response | http.HttpError;

export interface TestOptions {
  jobId?: string;
  endpoint?: string;
  attempt?: number;
  remaining?: number;
  cancelled?: boolean;
  /** Chunks after which the job is cancelled. */
  cancelledAfter?: number;
  s3Config?: S3Config;
  traceParent?: string;
  /** Bytes that the job may emit. */
  emitQuota?: number;
  emitClosed?: boolean;
  /**
   * Answers by exact URL: the last answer of a list repeats; any other URL is denied. While the
   * handler runs, `fetch` has these answers too; without this option it is that of Node.
   */
  http?: Record<string, Answer | Answer[]>;
  /**
   * Results of `ctx.call` by endpoint: a value of JSON, a `CallError`, or a function that makes the
   * value from the input. A list has one result for each call, and its last one repeats; so a
   * result that is a list itself needs a list around it. Any other endpoint is denied.
   */
  endpoints?: Record<string, unknown>;
}

/** A context with prepared answers, which records what the handler sends. */
export class TestContext extends Context {
  constructor(options?: TestOptions);
  /** The chunks that were emitted, as a client would read them. */
  readonly chunks: { output: any; metrics?: Record<string, any> }[];
  /** The outputs of the chunks. */
  get outputs(): any[];
  /** The values that the job's status showed. */
  readonly progressValues: any[];
  /** The lines of the job's log, without those of `console`. */
  readonly logs: [level: Level, message: string][];
  /** The HTTP requests that were sent. */
  readonly requests: http.Request[];
  /** The calls of other endpoints, by `submit` and `call`. */
  readonly calls: { endpoint: string; input: any; idempotencyKey?: string }[];
  /** Whether the handler asked the host to give its instance no further job. */
  readonly retired: boolean;
  /**
   * What the handler wishes for its job if the attempt fails: the milliseconds of its last
   * `retryAfter`, `"never"` after `neverRetry`, and undefined without a call.
   */
  readonly retryWish: number | "never" | undefined;
  /** Runs a handler as the platform does. Rejects with a `GristmillError` when the job fails. */
  run(handler: JobHandler | Handler<any, any>, input: unknown): Promise<any>;
  /** Runs a handler with JSON text as input and output. */
  runJson(handler: JobHandler | Handler<any, any>, input: string): Promise<string>;
}
