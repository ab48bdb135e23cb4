// A fake host, so that handlers run in a plain `node --test`. It has no timing: `emit` never waits,
// every progress value is kept, and nothing stops a handler that does not return.

import { Context } from "./context.js";
import { CallError, EmitError } from "./errors.js";
import { of, run } from "./handler.js";
import { HttpError } from "./http.js";

/** A context with prepared answers, which records what the handler sends. */
export class TestContext extends Context {
  chunks = [];
  progressValues = [];
  logs = [];
  requests = [];
  calls = [];
  retired = false;
  retryWish = undefined;
  #answersFetch;

  constructor(options = {}) {
    const {
      jobId = "test-job",
      endpoint = "test-endpoint",
      attempt = 1,
      remaining = 600_000,
      cancelled = false,
      cancelledAfter = cancelled ? 0 : Infinity,
      s3Config,
      traceParent,
      emitQuota = Infinity,
      emitClosed = false,
      http,
      endpoints = {},
    } = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== null));
    let emittedBytes = 0;
    const answers = Object.fromEntries(
      Object.entries(http ?? {}).map(([url, answer]) => [url, [answer].flat()]),
    );
    const results = new Map(
      Object.entries(endpoints).map(([id, result]) => [id, Array.isArray(result) ? result : [result]]),
    );
    const record = (endpoint, input, idempotencyKey) => {
      this.calls.push({ endpoint, input: JSON.parse(input), ...(idempotencyKey && { idempotencyKey }) });
      if (results.has(endpoint)) return results.get(endpoint);
      throw new CallError("denied", `endpoint \`${endpoint}\`: the test has no answer for it`);
    };
    super(jobId, {
      endpoint: () => endpoint,
      attempt: () => attempt,
      remainingMs: () => remaining,
      cancelled: () => this.chunks.length >= cancelledAfter,
      s3Config: () => s3Config,
      traceParent: () => traceParent,
      retire: () => void (this.retired = true),
      retryAfter: (ms) => void (this.retryWish = ms ?? "never"),
      emit: (output, metrics) => {
        if (emitClosed) throw new EmitError("closed");
        if (metrics && !metrics.startsWith("{")) {
          throw new EmitError("invalid-json", "metrics are not an object");
        }
        const bytes = new TextEncoder().encode(output + (metrics ?? "")).length;
        if (emittedBytes + bytes > emitQuota) {
          throw new EmitError("quota-exceeded", undefined, emitQuota);
        }
        emittedBytes += bytes;
        this.chunks.push({
          output: JSON.parse(output),
          ...(metrics && { metrics: JSON.parse(metrics) }),
        });
      },
      progress: (value) => void this.progressValues.push(JSON.parse(value)),
      log: (level, message) => void this.logs.push([level, message]),
      httpSend: (request) => {
        this.requests.push(request);
        const [answer, ...more] = answers[request.url] ?? [];
        if (!answer) throw new HttpError("denied", `${request.url}: the test has no answer for it`);
        if (more.length) answers[request.url] = more;
        if (answer instanceof HttpError) throw answer;
        return answer;
      },
      submit: (...call) => {
        record(...call);
        return `test-job-${this.calls.length}`;
      },
      call: (...call) => {
        const results = record(...call);
        const result = results.length > 1 ? results.shift() : results[0];
        if (result instanceof CallError) throw result;
        const output = typeof result === "function" ? result(this.calls.at(-1).input) : result;
        return JSON.stringify(output ?? null);
      },
    });
    this.#answersFetch = http !== undefined;
  }

  get outputs() {
    return this.chunks.map((chunk) => chunk.output);
  }

  async run(handler, input) {
    return JSON.parse(await this.runJson(handler, JSON.stringify(input)));
  }

  async runJson(handler, input) {
    const { fetch } = globalThis;
    if (this.#answersFetch) globalThis.fetch = (...request) => this.#fetch(...request);
    try {
      return await run(of(handler), this, input);
    } finally {
      globalThis.fetch = fetch;
    }
  }

  /** `fetch` with the prepared answers. */
  async #fetch(input, init) {
    const request = new Request(input, init);
    const { method, url } = request;
    const body = new Uint8Array(await request.arrayBuffer());
    try {
      const answer = this.httpSend({ method, url, headers: [...request.headers], body });
      const response = new Response(answer.body.length ? answer.body : null, answer);
      return Object.defineProperty(response, "url", { value: url });
    } catch (error) {
      throw new TypeError(`fetch failed: ${error.message}`, { cause: error });
    }
  }
}
