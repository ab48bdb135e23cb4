// `runpod-sdk` for JavaScript. `run.sh` starts the host and sets the environment.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import runpodSdk from "runpod-sdk";

const baseUrl = process.env.RUNPOD_ENDPOINT_BASE_URL;
const endpoint = (name, key = process.env.RUNPOD_API_KEY) =>
  runpodSdk(key, { baseUrl }).endpoint(name);
const echo = endpoint("echo");
const playground = endpoint("playground");
const tokenStream = endpoint("token-stream");
const paused = endpoint("paused-javascript");

async function start(on, input, more = {}) {
  const job = await on.run({ input, ...more });
  assert.deepEqual(Object.keys(job).sort(), ["id", "status"]);
  assert.equal(job.status, "IN_QUEUE");
  return job.id;
}

async function reaches(on, id, status) {
  for (let tries = 0; tries < 300; tries++) {
    const state = await on.status(id);
    if (state.status === status) return state;
    await sleep(100);
  }
  assert.fail(`the job did not become ${status}`);
}

async function streamed(on, id) {
  const chunks = [];
  for await (const chunk of on.stream(id)) chunks.push(chunk);
  return chunks;
}

const refusedWith = (status) => (error) => {
  assert.equal(error.response.status, status);
  assert.equal(typeof error.response.data.error, "string");
  return true;
};

test("runSync", async () => {
  const value = { text: "Mühle 磨", nested: [{ a: null }, 1.5, true] };
  const result = await echo.runSync({ input: value });
  assert.deepEqual(result.output, value);
  assert.equal(result.status, "COMPLETED");
  assert.ok(result.completed && result.succeeded);
  assert.ok(Number.isInteger(result.delayTime) && Number.isInteger(result.executionTime));
});

test("runSync goes on with status-sync when its wait is over", async () => {
  const result = await playground.runSync({ input: { op: "sleep", ms: 5000 } }, 4000);
  assert.equal(result.status, "COMPLETED");
  assert.deepEqual(result.output, { slept: 5000, echo: null });
});

test("runSync gives up, and the job goes on until it is cancelled", async () => {
  const result = await playground.runSync({ input: { op: "spin" } }, 2000);
  assert.equal(result.completed, false);
  assert.equal(result.status, "IN_PROGRESS");
  assert.equal((await playground.cancel(result.id)).status, "CANCELLED");
});

test("runSync of a failing job", async () => {
  const result = await playground.runSync({ input: { op: "fail", message: "no more flour" } });
  assert.equal(result.status, "FAILED");
  assert.equal(result.error, "no more flour");
  assert.equal(result.succeeded, false);
});

test("run, status", async () => {
  const id = await start(playground, { op: "sleep", ms: 3000, value: "late" });
  const early = await playground.status(id);
  assert.ok(["IN_QUEUE", "IN_PROGRESS"].includes(early.status));
  assert.equal(early.completed, false);
  const late = await reaches(playground, id, "COMPLETED");
  assert.deepEqual(late.output, { slept: 3000, echo: "late" });
  assert.ok(late.completed && late.succeeded && late.executionTime >= 3000);
});

test("statusSync waits for the end", async () => {
  const id = await start(playground, { op: "sleep", ms: 1500, value: 7 });
  const result = await playground.statusSync(id, 60000);
  assert.equal(result.status, "COMPLETED");
  assert.deepEqual(result.output, { slept: 1500, echo: 7 });
});

test("statusSync returns when its wait is over", async () => {
  const id = await start(paused, { n: 1 });
  const result = await paused.statusSync(id, 1000);
  assert.equal(result.status, "IN_QUEUE");
  assert.equal(result.completed, false);
  await paused.cancel(id);
});

test("many jobs at once", async () => {
  const values = [...Array(40).keys()];
  const results = await Promise.all(
    values.map((value) => playground.runSync({ input: { op: "sleep", ms: 200, value } })),
  );
  assert.deepEqual(results.map((result) => result.output.echo), values);
});

test("a job that traps", async () => {
  const state = await reaches(playground, await start(playground, { op: "trap" }), "FAILED");
  assert.match(state.error, /unreachable/);
  assert.equal("output" in state, false);
});

test("execution timeout", async () => {
  const policy = { executionTimeout: 5000 };
  const id = await start(playground, { op: "spin" }, { policy, webhookV2: null });
  const result = await playground.statusSync(id, 60000);
  assert.equal(result.status, "TIMED_OUT");
  assert.equal(result.error, "executionTimeout exceeded");
  assert.ok(result.completed && !result.succeeded);
});

test("cancel of a spinning job", async () => {
  const id = await start(playground, { op: "spin" });
  await reaches(playground, id, "IN_PROGRESS");
  assert.deepEqual(await playground.cancel(id), { id, status: "CANCELLED" });
  const state = await playground.status(id);
  assert.equal(state.status, "CANCELLED");
  assert.ok(state.completed && !state.succeeded);
  assert.deepEqual(await streamed(playground, id), []);
});

test("cancel of a queued job", async () => {
  const id = await start(paused, { n: 1 });
  assert.equal((await paused.cancel(id)).status, "CANCELLED");
  assert.equal((await paused.status(id)).status, "CANCELLED");
});

// This client asks again without a pause: a chunk that the host sends twice is seen here.
test("stream while the job runs", async () => {
  const id = await start(playground, { op: "stream", count: 300, delay_ms: 10 });
  const chunks = await streamed(playground, id);
  assert.deepEqual(chunks.map((chunk) => chunk.output.i), [...Array(300).keys()]);
  assert.deepEqual(chunks.map((chunk) => chunk.metrics.stream_index), [...Array(300).keys()]);
  assert.equal((await playground.status(id)).status, "COMPLETED");
});

test("stream with pauses longer than a call is held", async () => {
  const id = await start(tokenStream, { prompt: "two tokens", delay_ms: 5000 });
  const chunks = await streamed(tokenStream, id);
  assert.deepEqual(chunks.map((chunk) => chunk.output), ["two", " tokens"]);
});

test("stream after the end, once", async () => {
  const id = await start(tokenStream, { prompt: "fine; ground" });
  await tokenStream.statusSync(id, 60000);
  const chunks = await streamed(tokenStream, id);
  assert.deepEqual(chunks.map((chunk) => chunk.output), ["fine", ";", " ground"]);
  assert.deepEqual(await streamed(tokenStream, id), []);
});

test("stream without chunks ends", async () => {
  assert.deepEqual(await streamed(echo, await start(echo, { n: 1 })), []);
});

test("health", async () => {
  const before = await playground.health();
  await playground.runSync({ input: { op: "echo" } });
  await playground.runSync({ input: { op: "fail", message: "counted" } });
  const after = await playground.health();
  assert.equal(after.jobs.completed, before.jobs.completed + 1);
  assert.equal(after.jobs.failed, before.jobs.failed + 1);
  for (const kind of ["idle", "initializing", "ready", "running", "throttled"])
    assert.ok(Number.isInteger(after.workers[kind]), kind);
});

test("purgeQueue", async () => {
  const ids = await Promise.all([0, 1, 2, 3].map((n) => start(paused, { n })));
  assert.equal((await paused.health()).jobs.inQueue, 4);
  assert.deepEqual(await paused.purgeQueue(), { removed: 4, status: "completed" });
  assert.equal((await paused.health()).jobs.inQueue, 0);
  await assert.rejects(paused.status(ids[0]), refusedWith(404));
});

test("errors", async () => {
  await assert.rejects(endpoint("nowhere").run({ input: {} }), refusedWith(404));
  await assert.rejects(echo.status("nobody"), refusedWith(404));
  await assert.rejects(endpoint("echo", "wrong").run({ input: {} }), refusedWith(401));
  await assert.rejects(echo.run({}), refusedWith(400));
});
