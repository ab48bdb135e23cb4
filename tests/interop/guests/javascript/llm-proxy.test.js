// OpenAI's client, a deployed handler that passes its calls on, and a server that streams tokens; and
// the client inside a handler.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import OpenAI from "openai";

import { GRISTMILL_API_KEY, GRISTMILL_BUILT, GRISTMILL_URL, deploy, job, listen } from "./host.js";

const TOKENS = ["slow", " mills", " grind", " fine"];
const SECOND_MS = 1000;

let upstream;
let respond;
const client = new OpenAI({
  apiKey: GRISTMILL_API_KEY,
  baseURL: `${GRISTMILL_URL}/v2/llm-proxy-test/openai/v1`,
  maxRetries: 0,
  timeout: 60 * SECOND_MS,
});
const chat = { model: "mill", messages: [{ role: "user", content: "grind" }] };

before(async () => {
  upstream = await listen(
    createServer((request, response) => {
      const pieces = [];
      request.on("data", (piece) => pieces.push(piece));
      request.on("end", () => respond(request, response, Buffer.concat(pieces).toString()));
    }),
  );
  const env = [`UPSTREAM_URL=http://${upstream.address}`, "UPSTREAM_KEY=grist"];
  await deploy(
    "llm-proxy-test",
    `${GRISTMILL_BUILT}/javascript-llm-proxy.wasm`,
    ...env.flatMap((pair) => ["--env", pair]),
    ...["--allow-host", upstream.address],
  );
});
after(() => upstream.close());

const event = (content) =>
  `data: ${JSON.stringify({ object: "chat.completion.chunk", choices: [{ index: 0, delta: { content } }] })}\n\n`;

test("a token reaches the client before the upstream has sent the next one", async () => {
  let received;
  let sent = 0;
  respond = async (request, response, body) => {
    assert.equal(request.url, "/v1/chat/completions");
    assert.equal(request.headers.authorization, "Bearer grist");
    assert.equal(JSON.parse(body).stream, true);
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const token of TOKENS) {
      const arrived = new Promise((resolve) => (received = resolve));
      response.write(event(token));
      sent += 1;
      // The next token is sent only after the client has this one.
      await arrived;
    }
    response.end("data: [DONE]\n\n");
  };
  const got = [];
  for await (const chunk of await client.chat.completions.create({ ...chat, stream: true })) {
    got.push(chunk.choices[0].delta.content);
    assert.equal(sent, got.length);
    received();
  }
  assert.deepEqual(got, TOKENS);
});

test("an answer without a stream is passed on", async () => {
  const answer = { object: "chat.completion", choices: [{ message: { content: "flour" } }] };
  respond = (_request, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(answer));
  };
  const { choices } = await client.chat.completions.create(chat);
  assert.equal(choices[0].message.content, "flour");
});

test("an error of the upstream reaches the client with its status", async () => {
  respond = (_request, response) => {
    response.writeHead(429, { "content-type": "application/json" });
    response.end('{"error":{"message":"slow down","type":"rate_limit_error"}}');
  };
  await assert.rejects(client.chat.completions.create(chat), OpenAI.RateLimitError);
});

test("the client works inside a handler", async () => {
  const file = `${GRISTMILL_BUILT}/javascript-openai.wasm`;
  await deploy("openai-client-test", file, "--allow-host", upstream.address);
  respond = (request, response, body) => {
    assert.equal(request.headers.authorization, "Bearer grist");
    assert.equal(JSON.parse(body).messages[0].content, "grind");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`${TOKENS.map(event).join("")}data: [DONE]\n\n`);
  };
  const done = await job("openai-client-test", { base: `http://${upstream.address}/v1` });
  assert.deepEqual(done.output, TOKENS, JSON.stringify(done));
});
