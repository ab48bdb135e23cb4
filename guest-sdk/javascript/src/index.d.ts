/** Write Gristmill handlers in JavaScript and TypeScript. */

export * as http from "./http.js";

/** The severity of a line in the job's log. */
export type Level = "trace" | "debug" | "info" | "warn" | "error";

/** A value or a promise of it. */
type Awaitable<T> = T | Promise<T>;

/**
 * The result of a handler: a value, a generator that yields chunks, or any async iterable of chunks,
 * such as a `ReadableStream`.
 */
export type Outcome<Output, Emitted = unknown> =
  | Awaitable<Output>
  | Generator<Emitted, Output | void>
  | AsyncGenerator<Emitted, Output | void>
  | AsyncIterable<Emitted>;

/** A place for files, and the credentials for it. A field that the submission left out is empty. */
export interface S3Config {
  accessId: string;
  accessSecret: string;
  bucketName: string;
  endpointUrl: string;
}

/** A job, as handlers of the hosted services know it. */
export interface Job<Input = any> {
  id: string;
  /**
   * The submission's `input`. An integer beyond 2^53 loses digits, as everywhere in JavaScript:
   * `serveRaw` has the text.
   */
  input: Input;
  s3Config?: S3Config;
}

/**
 * The running attempt: its properties, and all calls from the handler to the host.
 *
 * Calls return at once, except `emit`, which waits while the host's buffer is full, `httpSend`,
 * `submit` and `call`.
 * Tests create a context with `TestContext` of `gristmill-sdk/testing`.
 */
export class Context {
  /** The job's id, as the client sees it. */
  get jobId(): string;
  /** The id of the endpoint that the job was submitted to. */
  get endpoint(): string;
  /** 1 for the first attempt; one more for each time the job was queued again. */
  get attempt(): number;
  /** Milliseconds until the host stops this attempt; zero when it is over. */
  get remaining(): number;
  /**
   * True once the job was cancelled or the host is shutting down. The host stops the attempt
   * shortly after that; a handler that checks this value has time to clean up.
   */
  get cancelled(): boolean;
  /** Throws {@link Cancelled} once `cancelled` is true. */
  checkCancelled(): void;
  /** Where the handler may store files: the submission's `s3Config`, if it has one. */
  get s3Config(): S3Config | undefined;
  /**
   * The position of this attempt in a distributed trace, as the `traceparent` header of W3C Trace
   * Context; undefined when the submission had none and the host does not trace the job.
   */
  get traceParent(): string | undefined;
  /**
   * Asks the host to give this instance no further job, for example after an error that may have
   * left a global in a wrong state. It has no effect on an endpoint without `reuse`.
   */
  retire(): void;
  /**
   * If this attempt fails, its job runs again after so many milliseconds, if the rule of its retries
   * permits another attempt. The delay is rounded to whole milliseconds, and is at most 7 days; a
   * longer one counts as 7 days, and a negative one as zero. The last call of this method or of
   * `neverRetry` counts. It has no effect on an attempt that does not fail. Throws a `TypeError` if
   * `ms` is not a number.
   */
  retryAfter(ms: number): void;
  /**
   * If this attempt fails, its job does not run again, whatever the rule of its retries is. The last
   * call of this method or of `retryAfter` counts.
   */
  neverRetry(): void;
  /**
   * Appends one chunk to the job's stream; the client receives `metrics` together with it.
   * Waits while the host's buffer for this job is full. Throws {@link EmitError}.
   */
  emit(output: unknown, metrics?: Record<string, unknown> | null): void;
  /**
   * Replaces the value that the job's status shows while it runs. Never waits. If values follow
   * each other quickly, clients may see only the last one. A value that has no JSON form is dropped
   * with a line in the job's log. When the handler fails, the last value stays as the job's
   * `output`, beside its `error`, unless it has more than 8 KiB.
   */
  progress(value: unknown): void;
  /**
   * Writes one line to the job's log, for the people who run the endpoint. The log is capped; the
   * host counts the lines beyond its cap. `console` writes to the same log.
   */
  log(level: Level, message: unknown): void;
  trace(message: unknown): void;
  debug(message: unknown): void;
  info(message: unknown): void;
  warn(message: unknown): void;
  /** The job continues; throw an error to end it. */
  error(message: unknown): void;
  /** Sends one HTTP request and waits for the whole answer; `http` has shorter forms. */
  httpSend(request: import("./http.js").Request): import("./http.js").Response;
  /**
   * Submits a job to another endpoint of the same owner, and resolves to its id. The job is on stable
   * storage then. A handler can call only the endpoints in its endpoint's `callEndpoints`. Rejects
   * with {@link CallError}.
   */
  submit(endpoint: string, input: object, options?: CallOptions): Promise<string>;
  /**
   * Submits a job to another endpoint and resolves to its output. It waits until shortly before the
   * end of this attempt, and runs nothing else meanwhile: calls one after the other, even in
   * `Promise.all`. Rejects with {@link CallError}.
   */
  call<Output = any>(endpoint: string, input: object, options?: CallOptions): Promise<Output>;
}

/** Options of `submit` and `call`. */
export interface CallOptions {
  /**
   * Makes the call safe to repeat, for example when this attempt runs again after a crash of the
   * host: for 24 hours, a call with the same key and input refers to the job of the first one. A
   * `call` after a `submit` with the same key and input waits for that job. Null is the same as no
   * key.
   */
  idempotencyKey?: string | null;
}

/** The context of the running job, for code that does not have it as an argument. */
export function context(): Context;

/** One element of a job's stream; a generator yields it to give `metrics` with a chunk. */
export class Chunk<Output = unknown> {
  constructor(output: Output, metrics?: Record<string, unknown> | null);
  readonly output: Output;
  readonly metrics?: Record<string, unknown> | null;
}

/** A function that can be a handler: `(job, ctx) => output`, or the result of {@link handler}. */
export type JobHandler<Input = any, Output = unknown> = (
  job: Job<Input>,
  ctx: Context,
) => Outcome<Output>;

declare const marked: unique symbol;
/** The result of {@link handler} and {@link serveRaw}; export it as default. */
export interface Handler<Input, Output> {
  (ctx: Context, input: Input): Outcome<Output>;
  readonly [marked]: true;
}

/** The part of https://standardschema.dev that schemas of zod, Valibot, ArkType and others have. */
export interface StandardSchema<Input> {
  readonly "~standard": {
    readonly validate: (
      value: unknown,
    ) => Awaitable<{ readonly value: Input; readonly issues?: undefined } | { readonly issues: readonly object[] }>;
  };
}

/**
 * A handler `(ctx, input) => output`, plain, async, or a generator. `validate` is a schema, or a
 * function that may be asynchronous. Its result is the input; an error that it throws, or the issues
 * of the schema, refuse the job with their message.
 */
export function handler<Input = any, Output = unknown>(
  work: (ctx: Context, input: Input) => Outcome<Output>,
  options?: { validate?: ((input: unknown) => Awaitable<Input>) | StandardSchema<Input> },
): Handler<Input, Output>;

/** Makes this the handler of the component, instead of the default export. */
export function serve<Input = any>(work: JobHandler<Input>): JobHandler<Input>;
export function serve<Input, Output>(work: Handler<Input, Output>): Handler<Input, Output>;

/** Makes `(ctx, text) => text` the handler of the component; the SDK does not parse the JSON. */
export function serveRaw(
  work: (ctx: Context, input: string) => Awaitable<string>,
): Handler<string, string>;

/**
 * The failure of a job that its handler cannot complete: throw one of the three classes below. Each
 * makes the job `FAILED`, and the host does not run it again: it runs a job again only if the host
 * itself stopped during the job. Any other error has the same effect, with its stack in the job's
 * log.
 */
export class GristmillError extends Error {
  /** `details` is any JSON value with information for programs. */
  constructor(message: string, details?: unknown);
  readonly details?: unknown;
}
/** The handler does not accept the input. */
export class InvalidInput extends GristmillError {}
/** The work could not be done. */
export class Failed extends GristmillError {}
/** The handler stopped because `ctx.cancelled` was true. */
export class Cancelled extends GristmillError {
  constructor();
}

/**
 * Why a chunk was not added to the job's stream. `closed`: the attempt is over, and chunks are no
 * longer read. `invalid-json`: the output has no JSON form, or the metrics are not an object.
 * `quota-exceeded`: with this chunk, the attempt would have emitted more than `limitBytes`.
 */
export class EmitError extends Error {
  constructor(kind: EmitError["kind"], why?: string, limitBytes?: number);
  readonly kind: "closed" | "invalid-json" | "quota-exceeded";
  readonly limitBytes?: number;
}

/** A job of another endpoint that ended without an output. */
export interface FailedJob {
  id: string;
  status: "FAILED" | "TIMED_OUT" | "CANCELLED";
  error: string;
}

/**
 * Why a call of another endpoint has no result. `denied`: the endpoint's `callEndpoints` does not have
 * the other endpoint, or this does not exist. `invalid-request`: the endpoint's id, the input or the key
 * is malformed, or the key was used for another input. `limit-reached`: the attempt has made as many
 * calls as it may, the chain of calls is too long, or the other endpoint's queue is full. `failed`: the
 * job ended without an output. `timeout`: the attempt has no time left to wait; the job continues.
 */
export class CallError extends Error {
  constructor(kind: CallError["kind"], why?: string, job?: FailedJob);
  readonly kind:
    "denied" | "invalid-request" | "limit-reached" | "failed" | "timeout" | "other";
  /** The job, if it is `failed`. */
  readonly job?: FailedJob;
}
