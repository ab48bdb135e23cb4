// Every feature of the SDK, one `op` for each: the same as in ../../python/features.

import { CallError, Chunk, EmitError, Failed, InvalidInput, context, http } from "gristmill-sdk";

// The exported `init` runs before the first job of an instance.
export async function init() {
  await later(0);
  starts += 1;
}

let starts = 0;
let jobs = 0;

// How often this instance was started, and which job of it this is.
function count() {
  jobs += 1;
  return [starts, jobs];
}

const later = (value) => new Promise((resolve) => setTimeout(resolve, 10 * value, value));

function kindOf(work) {
  try {
    work();
  } catch (error) {
    if (!(error instanceof http.HttpError || error instanceof EmitError)) throw error;
    return error.kind;
  }
}

// The output of another endpoint, or why there is none.
async function call({ input }, ctx) {
  try {
    return await ctx.call(input.endpoint, input.value, { idempotencyKey: input.key });
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    return [error.kind, error.job?.status ?? null, error.message];
  }
}

function fail(error) {
  throw error;
}

// The waits of a `finally` work as all others, also when the host ends the generator.
async function* tidying(notes) {
  try {
    yield 1;
    yield { error: "no flour" };
  } finally {
    await later(1);
    notes.push("stopped");
    await later(1);
    notes.push("swept");
  }
}

async function tidied() {
  const notes = [];
  for await (const _ of tidying(notes)) break;
  return notes;
}

function* failing() {
  yield Promise.reject(new Error("no flour"));
  yield later(1).then(() => fail(new RangeError("no water")));
}

// No item of these is in an array.
const several = async () => [
  await Promise.all(new Set([later(2), 1])),
  (await Promise.allSettled(failing())).map(({ reason }) => reason.message),
  await Promise.any(new Set([Promise.reject(new Error("no flour")), later(1)])),
  await Promise.race(new Map([[later(1), "rye"]]).keys()),
];

const nested = (depth) => (depth ? [nested(depth - 1)] : []);

const OPS = {
  facts: (job, ctx) => [
    job.id === ctx.jobId,
    ctx.endpoint,
    ctx.attempt,
    context().remaining > 1000,
    ctx.cancelled,
  ],
  count: () => count(),
  echo: (job) => job.input.value,
  s3: (job) => job.s3Config.bucketName,
  env: () => process.env.MILL,
  log: (_job, ctx) => {
    console.log("printed", { sacks: 2 });
    console.warn("complained");
    console.warn("bundle.js:20 is slow");
    for (const level of ["trace", "debug", "info", "warn", "error"]) ctx.log(level, `at ${level}`);
    ctx.info("lone \ud800");
  },
  call,
  submit: (job, ctx) => ctx.submit(job.input.endpoint, job.input.value),
  async: () => Promise.all([later(2), later(1)]),
  race: () =>
    Promise.race([
      later(100_000),
      (async () => {
        for (let i = 0; i < 5000; i++) await i;
        return "won";
      })(),
    ]),
  several,
  "none-of-several": () => Promise.any(failing()),
  http: () => kindOf(() => http.get("https://example.com/")),
  emit: (_job, ctx) => kindOf(() => ctx.emit(1, [])),
  random: () => [Math.random(), crypto.randomUUID()],
  text: (job) => new TextDecoder().decode(new TextEncoder().encode(job.input.value)),
  invalid: () => fail(new InvalidInput("no flour", { sacks: 0 })),
  failed: () => fail(new Failed("the wheel is stuck")),
  raise: () => fail(new RangeError("no water", { cause: new Error("drought") })),
  // The first attempt fails, and the next one returns its number.
  "retry-after": (_job, ctx) => {
    if (ctx.attempt > 1) return ctx.attempt;
    ctx.neverRetry();
    ctx.retryAfter(10);
    fail(new Failed("the wheel is stuck"));
  },
  "never-retry": (_job, ctx) => {
    ctx.retryAfter(10);
    ctx.neverRetry();
    fail(new Failed(`the wheel is stuck in attempt ${ctx.attempt}`));
  },
  nan: () => NaN,
  error: () => ({ error: { code: 7 }, rest: 1 }),
  tidied: () => tidied(),
  refresh: () => ({ refresh_worker: true, ground: count() }),
  surrogate: () => "\udc00",
  deep: () => nested(100),
  late: () =>
    new Promise(() => {
      setTimeout(() => fail(new Error("too late")), 1);
    }),
  stuck: () => new Promise(() => {}),
  sleep: () => later(10).then(count),
  // Ends before its timer.
  leave: (_job, ctx) => {
    setTimeout(() => ctx.emit("left behind"), 20);
    return count();
  },
};

export default async function* handler(job, ctx) {
  const { op } = job.input;
  if (op === "stream") {
    ctx.progress({ percent: 50 });
    yield { grain: 1 };
    yield new Chunk("flour", { sacks: 2 });
    return;
  }
  if (op === "tidy-stream") {
    return yield* tidying({ push: (line) => ctx.info(line) });
  }
  if (op === "broken-stream") {
    yield 1;
    throw new Error("no water");
  }
  return OPS[op](job, ctx);
}
