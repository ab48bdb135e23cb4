// How functions become handlers: both styles, streams, conventions, and every way to fail.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Cancelled, Chunk, Failed, InvalidInput, context, handler, serveRaw } from "gristmill-sdk";
import { TestContext } from "gristmill-sdk/testing";

const fails = (promise, kind, message) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof kind, String(error));
    if (message instanceof RegExp) assert.match(error.message, message);
    else assert.equal(error.message, message);
    return true;
  });

test("a job has its id, input and s3Config", async () => {
  const s3Config = { accessId: "me", accessSecret: "", bucketName: "b", endpointUrl: "" };
  const ctx = new TestContext({ jobId: "j-1", s3Config });
  assert.deepEqual(await ctx.run((job) => job, { n: 1 }), { id: "j-1", input: { n: 1 }, s3Config });
});

test("the context is the second parameter, and can be found", async () => {
  const ctx = new TestContext({ attempt: 3 });
  assert.deepEqual(
    await ctx.run(async (_job, { attempt }) => [attempt, context().attempt], 1),
    [3, 3],
  );
  assert.throws(context, /no job is running/);
});

test("a typed handler takes the context and the input", async () => {
  const double = handler((_ctx, input) => input * 2, {
    validate: (input) => {
      if (typeof input !== "number") throw new TypeError("expected a number");
      return input;
    },
  });
  assert.equal(await new TestContext().run(double, 2), 4);
  await fails(new TestContext().run(double, "x"), InvalidInput, "expected a number");
});

test("a validation may be asynchronous", async () => {
  const double = handler((_ctx, input) => input * 2, {
    validate: async (input) => {
      await null;
      context().info("checked");
      if (typeof input !== "number") throw new TypeError("expected a number");
      return input + 1;
    },
  });
  const ctx = new TestContext();
  assert.equal(await ctx.run(double, 2), 6);
  assert.deepEqual(ctx.logs, [["info", "checked"]]);
  const refused = new TestContext();
  await fails(refused.run(double, "x"), InvalidInput, "expected a number");
  // As if `validate` had thrown it: the log has no stack of it.
  assert.deepEqual(refused.logs, [["info", "checked"]]);
  const issues = [{ path: ["sacks"], message: "too few" }];
  const rejecting = (error) => handler(() => 1, { validate: () => Promise.reject(error) });
  await fails(
    new TestContext().run(rejecting(Object.assign(new Error("x"), { issues })), 1),
    InvalidInput,
    "sacks: too few",
  );
  await fails(new TestContext().run(rejecting(new Failed("no list")), 1), Failed, "no list");
});

test("a schema by Standard Schema validates", async () => {
  const validate = (value) =>
    typeof value === "number"
      ? { value: value + 1 }
      : { issues: [{ path: ["sacks"], message: "expected a number" }, { message: "no flour" }] };
  const asObject = { "~standard": { version: 1, vendor: "mill", validate } };
  const asynchronous = { "~standard": { validate: async (value) => validate(value) } };
  // As in ArkType, whose schemas return issues when they are called.
  const asFunction = Object.assign(() => "not called", asObject);
  for (const schema of [asObject, asynchronous, asFunction]) {
    const double = handler((_ctx, input) => input * 2, { validate: schema });
    assert.equal(await new TestContext().run(double, 2), 6);
    const refused = new TestContext();
    await fails(refused.run(double, "x"), InvalidInput, "sacks: expected a number; no flour");
    assert.deepEqual(refused.logs, []);
  }
});

test("a validation that is neither a function nor a schema is refused at once", () => {
  for (const validate of [{ parse: () => 1 }, "number", 1, true, { "~standard": {} }]) {
    assert.throws(() => handler(() => 1, { validate }), /`validate` is a function .* Standard Schema/);
  }
});

test("a raw handler keeps what JavaScript's numbers lose", async () => {
  const text = ' {"z": 9007199254740993, "a": 1.50} ';
  assert.equal(
    await new TestContext().runJson(
      serveRaw((_ctx, input) => input),
      text,
    ),
    text,
  );
});

test("an error in the output fails the job", async () => {
  await fails(
    new TestContext().run(() => ({ error: "no flour" }), 1),
    Failed,
    "no flour",
  );
  await fails(
    new TestContext().run(() => ({ error: { code: 7 } }), 1),
    Failed,
    '{"code":7}',
  );
  // A value without a JSON form has a text.
  await fails(
    new TestContext().run(() => ({ error: 10n }), 1),
    Failed,
    "10",
  );
  assert.deepEqual(await new TestContext().run(() => ({ error: null }), 1), { error: null });
});

test("a call of OpenAI is refused by an error object", async () => {
  const call = { openai_route: "/v1/chat/completions", openai_input: { model: "gpt-4" } };
  const refusal = { error: { message: "no model gpt-4", code: 400 } };
  assert.deepEqual(await new TestContext().run(() => refusal, call), refusal);
  const ctx = new TestContext();
  await ctx.run(function* () {
    yield refusal;
  }, call);
  assert.deepEqual(
    ctx.chunks.map(({ output }) => output),
    [refusal],
  );
  for (const error of ["no flour", new Error("no flour"), ["no flour"]]) {
    await fails(
      new TestContext().run(() => ({ error }), call),
      Failed,
      /no flour/,
    );
  }
  for (const other of [1, null, { openai_input: {} }, ["openai_route"], "openai_route"]) {
    await assert.rejects(
      new TestContext().run(() => refusal, other),
      Failed,
    );
  }
});

test("an error object in the output fails the job as if it had been thrown", async () => {
  const ctx = new TestContext();
  await fails(
    ctx.run(() => ({ error: new RangeError("no flour"), sacks: 0 }), 1),
    Failed,
    "RangeError: no flour",
  );
  assert.deepEqual(ctx.progressValues, [{ sacks: 0 }]);
  assert.match(ctx.logs[0][1], /^RangeError: no flour\n.*handler\.test\.js/);
  const refused = new InvalidInput("no rye", { sacks: 0 });
  await assert.rejects(
    new TestContext().run(() => ({ error: refused }), 1),
    refused,
  );
});

test("the rest of an object with an error is handed out", async () => {
  for (const returned of [
    { error: "no", x: 1 },
    { x: 1, refresh_worker: true, error: "no" },
  ]) {
    const ctx = new TestContext();
    await assert.rejects(
      ctx.run(() => returned, 1),
      { message: "no" },
    );
    assert.deepEqual(ctx.progressValues, [{ x: 1 }]);
  }
  const ctx = new TestContext();
  await assert.rejects(ctx.run(() => ({ error: "no" }), 1));
  assert.deepEqual(ctx.progressValues, []);
});

test("refresh_worker leaves the output", async () => {
  const ctx = new TestContext();
  assert.deepEqual(await ctx.run(() => ({ refresh_worker: true, x: 1 }), 1), { x: 1 });
  assert.ok(ctx.retired);
});

test("each yield is a chunk, and a return is the output", async () => {
  for (const countdown of [
    function* () {
      yield 2;
      yield new Chunk(1, { n: 1 });
      return "done";
    },
    async function* () {
      yield 2;
      await new Promise((resolve) => setTimeout(resolve, 1));
      yield new Chunk(1, { n: 1 });
      return "done";
    },
  ]) {
    const ctx = new TestContext();
    assert.equal(await ctx.run(countdown, 1), "done");
    assert.deepEqual(ctx.chunks, [{ output: 2 }, { output: 1, metrics: { n: 1 } }]);
  }
});

/** Two values, as a library may have them: its iterator has only the function that it needs. */
const sacks = (more) => ({
  [Symbol.asyncIterator]() {
    let n = 0;
    return { next: async () => (n < 2 ? { value: n++, done: false } : { done: true }), ...more };
  },
});

test("any async iterable is a stream", async () => {
  for (const iterable of [() => sacks(), () => ReadableStream.from([0, 1])]) {
    const ctx = new TestContext();
    assert.equal(await ctx.run(iterable, 1), null);
    assert.deepEqual(ctx.outputs, [0, 1]);
    const stopped = new TestContext({ cancelledAfter: 1 });
    await fails(stopped.run(iterable, 1), Cancelled, "cancelled");
    assert.deepEqual(stopped.outputs, [0]);
  }
});

test("the return method of an iterator is called only if it has neither ended nor failed", async () => {
  let ended = 0;
  const more = { return: () => void (ended += 1) };
  await new TestContext().run(() => sacks(more), 1);
  const broken = () => Promise.reject(new Error("no water"));
  await assert.rejects(new TestContext().run(() => sacks({ ...more, next: broken }), 1), Failed);
  assert.equal(ended, 0);
  await assert.rejects(new TestContext({ cancelledAfter: 1 }).run(() => sacks(more), 1), Cancelled);
  assert.equal(ended, 1);
});

test("without a return the host aggregates", async () => {
  assert.equal(
    await new TestContext().runJson(function* () {
      yield 1;
    }, "1"),
    "null",
  );
});

test("a yielded error ends the job after the chunks before it", async () => {
  const ctx = new TestContext();
  const broken = function* () {
    yield 1;
    yield { error: "no flour" };
    yield 2;
  };
  await fails(ctx.run(broken, 1), Failed, "no flour");
  assert.deepEqual(ctx.outputs, [1]);
});

test("a cancelled job ends at its next yield", async () => {
  let tidied = false;
  const endless = function* () {
    try {
      while (true) yield 1;
    } finally {
      tidied = true;
    }
  };
  const ctx = new TestContext({ cancelledAfter: 2 });
  await fails(ctx.run(endless, 1), Cancelled, "cancelled");
  assert.deepEqual([ctx.outputs, tidied], [[1, 1], true]);
});

test("an error becomes the job's error, and its stack is logged", async () => {
  const ctx = new TestContext();
  await fails(
    ctx.run(() => null.flour, 1),
    Failed,
    /^TypeError: Cannot read properties of null/,
  );
  const [[level, lines]] = ctx.logs;
  assert.equal(level, "error");
  assert.match(lines, /handler\.test\.js/);
  await fails(
    new TestContext().run(() => {
      throw { code: 7 };
    }, 1),
    Failed,
    '{"code":7}',
  );
});

test("the log has each error of an AggregateError, even of one that contains itself", async () => {
  const ctx = new TestContext();
  const both = new AggregateError([new Error("no flour"), new RangeError("no water")], "all mills");
  both.errors.push(both);
  await fails(
    ctx.run(() => Promise.reject(both), 1),
    Failed,
    "AggregateError: all mills",
  );
  const lines = ctx.logs[0][1].split("\n").filter((line) => !/^\s+at /.test(line));
  assert.deepEqual(lines, [
    "AggregateError: all mills",
    "one of them: Error: no flour",
    "one of them: RangeError: no water",
    "one of them: AggregateError: all mills",
  ]);
});

test("what is not JSON is refused", async () => {
  for (const [output, why] of [
    [NaN, "NaN is not JSON"],
    [{ a: [Infinity] }, "Infinity is not JSON"],
    [1n, "a bigint is not JSON"],
    [() => 1, "a function is not JSON"],
  ]) {
    await fails(
      new TestContext().run(() => output, 1),
      Failed,
      `output has no JSON form: ${why}`,
    );
  }
});

test("a module without a handler is refused, and an export named handler is one", async () => {
  // A module of its own: other tests have called `serve`.
  const { handle } = await import("../src/handler.js?fresh");
  const ctx = new TestContext();
  assert.throws(() => handle({}, ctx, "1"), /there is no handler: export a function as default/);
  assert.equal(await handle({ handler: (job) => job.input + 1 }, ctx, "1"), "2");
});

test("the issues of a validation are one sentence", async () => {
  // As zod, Valibot and Standard Schema have them.
  const issues = [
    { path: ["items", 2, "name"], message: "expected string" },
    { path: [{ key: "sacks" }], message: "too few" },
    { message: "unknown keys" },
  ];
  const failing = () => {
    throw Object.assign(new Error(JSON.stringify(issues, null, 2)), { name: "ZodError", issues });
  };
  const expected = "items[2].name: expected string; sacks: too few; unknown keys";
  await fails(
    new TestContext().run(handler(failing, { validate: failing }), 1),
    InvalidInput,
    expected,
  );
  await fails(new TestContext().run(failing, 1), Failed, `ZodError: ${expected}`);
});
