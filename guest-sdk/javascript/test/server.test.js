// Which modules answer requests, and what becomes of their errors.

import assert from "node:assert/strict";
import { test } from "node:test";

import { InvalidInput } from "../src/errors.js";
import { fetchOf, respond } from "../src/server.js";

const answered = async (fetch) => {
  const logs = [];
  const request = new Request("http://a.example/");
  const response = await respond(fetch, request, { A: "1" }, (text) => logs.push(text));
  return [response.status, await response.text(), logs.join("\n")];
};

test("a module answers requests if it has a function fetch", () => {
  const fetch = () => new Response("rye");
  for (const module of [{ fetch }, { default: { fetch } }]) {
    assert.equal(typeof fetchOf(module), "function");
  }
  // A function as default is a handler of jobs, whatever its properties.
  const handler = Object.assign(() => {}, { fetch });
  for (const module of [{}, { default: handler }, { default: { fetch: 1 } }, { handler }]) {
    assert.equal(fetchOf(module), undefined);
  }
});

test("fetch is called as a method, with the environment", async () => {
  const app = {
    word: "rye",
    async fetch(request, env) {
      return new Response(`${this.word} ${env.A} ${request.url}`);
    },
  };
  const expected = [200, "rye 1 http://a.example/", ""];
  assert.deepEqual(await answered(fetchOf({ default: app })), expected);
});

test("an error is an answer without its text", async () => {
  for (const [fetch, logged] of [
    [() => Promise.reject(new Error("no flour")), "no flour"],
    [() => { throw new InvalidInput("no sack"); }, "no sack"],
    [() => "rye", "fetch returned string"],
  ]) {
    const [status, body, log] = await answered(fetch);
    assert.deepEqual([status, body], [500, "internal error\n"]);
    assert.match(log, new RegExp(logged));
  }
});
