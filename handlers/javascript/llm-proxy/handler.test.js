import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import { TestContext } from "gristmill-sdk/testing";

import proxy from "./handler.ts";

const chat = { openai_route: "/v1/chat/completions", openai_input: { stream: true } };
let respond;
let server;

before(async () => {
  server = createServer((request, response) => respond(request, response));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  process.env.UPSTREAM_URL = `http://127.0.0.1:${server.address().port}`;
  process.env.UPSTREAM_KEY = "secret";
});
after(() => server.close());

test("events come whole, wherever the pieces end", async () => {
  respond = (request, response) => {
    assert.equal(request.headers.authorization, "Bearer secret");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('data: "gr');
    setTimeout(() => response.end('ist"\n\ndata: [DONE]\n\n'), 10);
  };
  const ctx = new TestContext();
  await ctx.run(proxy, chat);
  assert.equal(ctx.outputs.join(""), 'data: "grist"\n\ndata: [DONE]\n\n');
  assert.ok(ctx.outputs.every((text) => text.endsWith("\n\n")));
});

test("events of an upstream with \\r\\n come one by one", async () => {
  const events = ['event: token\ndata: "gr"\n\n', 'data: "ist"\n\n', "data: [DONE]\n\n"];
  const pieces = [
    'event: token\r\ndata: "gr"\r\n\r',
    '\ndata: "ist"\r',
    "\n\r\ndata: [DONE]\r\n\r\n",
  ];
  respond = async (_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const piece of pieces) {
      response.write(piece);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    response.end();
  };
  const ctx = new TestContext();
  await ctx.run(proxy, chat);
  assert.equal(ctx.outputs.join(""), events.join(""));
  assert.ok(ctx.outputs.length > 1, String(ctx.outputs));
  assert.ok(ctx.outputs.every((text) => text.endsWith("\n\n")));
});

test("an error of the upstream keeps its status and its type", async () => {
  respond = (_request, response) => {
    response.writeHead(429, { "content-type": "application/json" });
    response.end('{"error":{"message":"slow down","type":"rate_limit_error"}}');
  };
  assert.deepEqual(await new TestContext().run(proxy, chat), {
    error: { code: 429, message: "slow down", type: "rate_limit_error" },
  });
});

test("an upstream that is no API is a bad gateway", async () => {
  respond = (_request, response) => response.end("<html>");
  const { error } = await new TestContext().run(proxy, { openai_route: "/v1/models" });
  assert.equal(error.code, 502);
});
