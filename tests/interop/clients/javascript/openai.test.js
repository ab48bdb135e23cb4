// `openai` for JavaScript. `run.sh` starts the host and sets the environment.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";

const url = process.env.GRISTMILL_URL;
const key = process.env.RUNPOD_API_KEY;
const connect = (endpoint, apiKey = key) =>
  new OpenAI({ baseURL: `${url}/v2/${endpoint}/openai/v1`, apiKey, maxRetries: 0 });
const client = connect("chat");
const playground = connect("playground");

const model = "gristmill-markov";
const messages = [
  { role: "system", content: "You are a miller." },
  { role: "user", content: [{ type: "text", text: "How is bread made?" }] },
];
const ask = (on, more) => on.chat.completions.create({ model, messages, seed: 3, ...more });

async function collected(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

async function statusOf(job) {
  const headers = { authorization: `Bearer ${key}` };
  const response = await fetch(`${url}/v2/playground/status/${job}`, { headers });
  return (await response.json()).status;
}

test("models", async () => {
  const { data } = await client.models.list();
  assert.deepEqual(data.map((one) => one.id), [model]);
  assert.deepEqual({ ...(await client.models.retrieve(model)) }, { ...data[0] });
  await assert.rejects(client.models.retrieve("mill/large"), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, "model_not_found");
    assert.match(error.message, /mill\/large/);
    return true;
  });
});

test("chat", async () => {
  const answer = await ask(client, { max_tokens: 30 });
  assert.match(answer.choices[0].message.content, /^Bread/);
  const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
  assert.deepEqual((await ask(client, { max_tokens: 30 })).choices, answer.choices);
});

test("chat stream", async () => {
  const whole = await ask(client, { max_tokens: 30 });
  const chunks = await collected(await ask(client, { max_tokens: 30, stream: true }));
  assert.equal(chunks[0].choices[0].delta.role, "assistant");
  assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
  const text = chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join("");
  assert.equal(text, whole.choices[0].message.content);
});

test("chat stream with usage", async () => {
  const whole = await ask(client, { max_tokens: 30 });
  const stream_options = { include_usage: true };
  const chunks = await collected(
    await ask(client, { max_tokens: 30, stream: true, stream_options }),
  );
  const last = chunks.pop();
  assert.deepEqual(last.choices, []);
  assert.deepEqual(last.usage, whole.usage);
  assert.equal(chunks.length, whole.usage.completion_tokens + 1);
});

test("completions", async () => {
  const body = { model, prompt: "The upper", temperature: 0, max_tokens: 1 };
  assert.equal((await client.completions.create(body)).choices[0].text, " stone");
  const chunks = await collected(await client.completions.create({ ...body, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), " stone");
});

test("errors", async () => {
  const rejects = (call, kind, fields) =>
    assert.rejects(call, (error) => {
      assert.ok(error instanceof kind, error);
      for (const [name, value] of Object.entries(fields)) assert.equal(error[name], value);
      return true;
    });
  await rejects(ask(client, { temperature: 3 }), OpenAI.BadRequestError, { param: "temperature" });
  await rejects(ask(client, { model: "gpt" }), OpenAI.NotFoundError, { code: "model_not_found" });
  await rejects(ask(connect("nowhere")), OpenAI.NotFoundError, { type: "not_found_error" });
  await rejects(ask(connect("chat", "wrong")), OpenAI.AuthenticationError, { status: 401 });
  for (const stream of [false, true]) {
    const call = ask(playground, { op: "fail", message: "no more flour", stream });
    await rejects(call, OpenAI.InternalServerError, { code: "job_failed" });
  }
});

test("a handler that fails while it streams", async () => {
  const body = { op: "emit", values: [{ choices: [] }], message: "no more flour", stream: true };
  const stream = await ask(playground, body);
  const seen = [];
  await assert.rejects(async () => {
    for await (const chunk of stream) seen.push(chunk);
  }, /no more flour/);
  assert.equal(seen.length, 1);
});

test("leaving the stream cancels the job", async () => {
  const values = [...Array(1000).keys()].map((i) => ({ choices: [], i }));
  const body = { op: "emit", values, delay_ms: 300, stream: true };
  const { data: stream, response } = await ask(playground, body).withResponse();
  const job = response.headers.get("x-job-id");
  for await (const chunk of stream) {
    if (chunk.i === 1) break;
  }
  for (let tries = 0; tries < 300; tries++) {
    if ((await statusOf(job)) === "CANCELLED") return;
    await sleep(100);
  }
  assert.fail("the job went on");
});
