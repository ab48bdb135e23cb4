// The context and its fake host: chunks, progress, log, HTTP.

import assert from "node:assert/strict";
import { test } from "node:test";

import { CallError, Cancelled, http } from "gristmill-sdk";
import { TestContext } from "gristmill-sdk/testing";

const URL = "https://example.com/";

test("metrics must be an object", () => {
  const ctx = new TestContext();
  assert.throws(() => ctx.emit("x", 1), { kind: "invalid-json" });
  assert.deepEqual(ctx.chunks, []);
});

test("the quota counts chunks and metrics", () => {
  const ctx = new TestContext({ emitQuota: 10 });
  ctx.emit(1, { n: 2 });
  assert.throws(() => ctx.emit(34567), { kind: "quota-exceeded", limitBytes: 10 });
  assert.throws(() => new TestContext({ emitClosed: true }).emit(1), /the attempt is over/);
});

test("facts are what was told", () => {
  const ctx = new TestContext({ jobId: "j", endpoint: "e", attempt: 2, remaining: 1500 });
  assert.deepEqual([ctx.jobId, ctx.endpoint, ctx.attempt, ctx.remaining], ["j", "e", 2, 1500]);
  ctx.checkCancelled();
  assert.throws(() => new TestContext({ cancelled: true }).checkCancelled(), Cancelled);
});

test("the last wish counts", () => {
  const ctx = new TestContext();
  assert.equal(ctx.retryWish, undefined);
  for (const [ms, wish] of [
    [30_000, 30_000],
    [1.4, 1],
    [-1, 0],
    [Infinity, 2 ** 31 - 1],
  ]) {
    ctx.retryAfter(ms);
    assert.equal(ctx.retryWish, wish);
  }
  ctx.neverRetry();
  assert.equal(ctx.retryWish, "never");
  for (const wrong of [NaN, undefined, null, "1"]) {
    assert.throws(() => ctx.retryAfter(wrong), /^TypeError: ms: expected a number of milliseconds/);
  }
  assert.equal(ctx.retryWish, "never");
});

test("each level has its method", () => {
  const ctx = new TestContext();
  const levels = ["trace", "debug", "info", "warn", "error"];
  for (const level of levels) ctx[level](level);
  assert.deepEqual(
    ctx.logs,
    levels.map((level) => [level, level]),
  );
});

test("progress without a JSON form is logged and dropped", () => {
  const ctx = new TestContext();
  ctx.progress(NaN);
  assert.deepEqual(ctx.progressValues, []);
  assert.deepEqual(ctx.logs, [["warn", "progress value has no JSON form: NaN is not JSON"]]);
});

test("HTTP answers come in their order, and the last repeats", async () => {
  const answers = [
    new http.HttpError("timeout"),
    new http.Response(404, '{"a":"é"}', { Age: "1" }),
  ];
  const ctx = new TestContext({ http: { [URL]: answers } });
  const output = await ctx.run(() => {
    assert.throws(() => http.get(URL), { kind: "timeout" });
    const response = http.post(URL, { json: { q: 1 }, headers: { x: "y" }, timeout: 2 });
    return [response.status, response.header("age"), response.json()];
  }, 1);
  assert.deepEqual(output, [404, "1", { a: "é" }]);
  const { method, body, headers, timeout } = ctx.requests[1];
  assert.deepEqual([method, new TextDecoder().decode(body), timeout], ["POST", '{"q":1}', 2]);
  assert.deepEqual(headers, [
    ["x", "y"],
    ["content-type", "application/json"],
  ]);
});

test("headers are an object, pairs, a Map or a Headers", async () => {
  const ctx = new TestContext({ http: { [URL]: new http.Response(200) } });
  const all = [{ a: "1" }, [["a", "1"]], new Map([["a", "1"]]), new Headers({ a: "1" })];
  await ctx.run(() => {
    for (const headers of all) http.get(URL, { headers });
    return null;
  }, 1);
  assert.deepEqual(
    ctx.requests.map(({ headers }) => headers),
    all.map(() => [["a", "1"]]),
  );
});

test("a content-type of the handler's own is the only one", async () => {
  const ctx = new TestContext({ http: { [URL]: new http.Response(200) } });
  const headers = { "Content-Type": "application/merge-patch+json" };
  await ctx.run(() => http.post(URL, { json: {}, headers }).status, 1);
  assert.deepEqual(ctx.requests[0].headers, Object.entries(headers));
});

test("an unknown URL is denied", () => {
  assert.throws(() => new TestContext().httpSend({ method: "GET", url: URL }), { kind: "denied" });
});

test("results of other endpoints come in their order, and the last repeats", async () => {
  const job = { id: "call1-a", status: "FAILED", error: "no flour" };
  const count = [new CallError("failed", undefined, job), { words: 6 }];
  const ctx = new TestContext({ endpoints: { count } });
  const output = await ctx.run(async (_job, ctx) => {
    await assert.rejects(ctx.call("count", { text: "rye" }), {
      kind: "failed",
      job,
      message: "job `call1-a` is FAILED: no flour",
    });
    const id = await ctx.submit("count", { text: "oat" }, { idempotencyKey: "k" });
    return [id, await ctx.call("count", {}), await ctx.call("count", {})];
  }, 1);
  assert.deepEqual(output, ["test-job-2", { words: 6 }, { words: 6 }]);
  assert.deepEqual(ctx.calls[1], {
    endpoint: "count",
    input: { text: "oat" },
    idempotencyKey: "k",
  });
});

test("a function makes the result of another endpoint from the input", async () => {
  const count = [({ text }) => ({ words: text.split(" ").length }), () => undefined];
  const ctx = new TestContext({ endpoints: { count } });
  const output = await ctx.run(
    async (_job, ctx) => [await ctx.call("count", { text: "to be" }), await ctx.call("count", {})],
    1,
  );
  assert.deepEqual(output, [{ words: 2 }, null]);
});

test("null is the same as no option", async () => {
  const answer = new http.Response(204, null, null);
  assert.deepEqual([answer.text(), answer.headers], ["", []]);
  const ctx = new TestContext({
    emitQuota: null,
    cancelledAfter: null,
    s3Config: null,
    http: { [URL]: answer },
    endpoints: { count: 1 },
  });
  await ctx.run(async (_job, ctx) => {
    ctx.emit(1, null);
    ctx.checkCancelled();
    await ctx.submit("count", {}, { idempotencyKey: null });
    await ctx.call("count", {}, { idempotencyKey: null });
    http.post(URL, { headers: null, body: null, timeout: null });
    ctx.httpSend({ method: "GET", url: URL, timeout: null });
    return ctx.s3Config;
  }, 1);
  assert.deepEqual(ctx.chunks, [{ output: 1 }]);
  const call = { endpoint: "count", input: {} };
  assert.deepEqual(ctx.calls, [call, call]);
  const [posted, sent] = ctx.requests;
  assert.deepEqual([posted.headers, posted.body.length], [[], 0]);
  assert.deepEqual([posted.timeout, sent.timeout], [undefined, undefined]);
  // Only as `json` it is a value.
  await ctx.run(() => http.post(URL, { json: null }).status, 1);
  assert.equal(new TextDecoder().decode(ctx.requests[2].body), "null");
  const { fetch } = globalThis;
  await new TestContext({ http: null }).run(() => assert.equal(globalThis.fetch, fetch), 1);
});

test("an unknown endpoint is denied with the job's error", async () => {
  const ctx = new TestContext();
  await assert.rejects(ctx.run((_job, ctx) => ctx.submit("count", {}), 1), {
    name: "Failed",
    message: "endpoint `count`: the test has no answer for it",
  });
  await assert.rejects(ctx.call("count", { n: NaN }), { kind: "invalid-request" });
});

test("fetch has the prepared answers while the handler runs", async () => {
  const before = globalThis.fetch;
  const answers = [new http.Response(201, '{"a":1}', { age: "1" }), new http.HttpError("timeout")];
  const ctx = new TestContext({ http: { [URL]: answers } });
  const output = await ctx.run(async () => {
    const response = await fetch(URL, { method: "POST", body: "grain" });
    const { status, url, headers } = response;
    await assert.rejects(fetch(URL), /^TypeError: fetch failed: HTTP request timed out$/);
    await assert.rejects(fetch("https://example.org/"), /has no answer for it/);
    return [status, url, headers.get("age"), await response.json()];
  }, 1);
  assert.deepEqual(output, [201, URL, "1", { a: 1 }]);
  assert.equal(new TextDecoder().decode(ctx.requests[0].body), "grain");
  assert.equal(globalThis.fetch, before);
  await new TestContext().run(() => assert.equal(globalThis.fetch, before), 1);
});
