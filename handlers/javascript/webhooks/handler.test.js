import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import { TestContext } from "gristmill-sdk/testing";

import app from "./handler.ts";
import { isFromGitHub, isFromStripe } from "./signatures.ts";

const bytes = (text) => new TextEncoder().encode(text);
const sign = (secret, text) => createHmac("sha256", secret).update(text).digest("hex");

test("the example of GitHub's documentation is right", () => {
  const secret = "It's a Secret to Everybody";
  const signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
  assert.ok(isFromGitHub(signature, bytes("Hello, World!"), secret));
  assert.ok(!isFromGitHub(signature, bytes("Hello, World?"), secret));
  for (const wrong of [undefined, "", signature.slice(7), signature.replace("7", "8")]) {
    assert.ok(!isFromGitHub(wrong, bytes("Hello, World!"), secret), wrong);
  }
  // A secret that is not set is no secret.
  assert.ok(!isFromGitHub(`sha256=${sign("", "x")}`, bytes("x"), ""));
});

test("a signature of Stripe has a time and may be one of several", () => {
  const right = sign("whsec", "1000.{}");
  const check = (header, now, secret = "whsec") =>
    isFromStripe(header, bytes("{}"), secret, { now });
  assert.ok(check(`t=1000,v1=${right}`, 1000));
  assert.ok(check(`t=1000,v1=00,v1=${right},v0=1`, 1300));
  for (const [header, now] of [
    [`t=1000,v1=${right}`, 1301],
    [`t=1000,v1=${right}`, 699],
    [`t=1001,v1=${right}`, 1000],
    [`t=1000,v0=${right}`, 1000],
    [`v1=${right}`, 1000],
    [`t=,v1=${right}`, 1000],
    ["", 1000],
    [undefined, 1000],
  ]) {
    assert.ok(!check(header, now), `${header} at ${now}`);
  }
  assert.ok(!check(`t=1000,v1=${sign("", "1000.{}")}`, 1000, ""));
});

test("an event becomes one job of the target", async () => {
  process.env.GITHUB_SECRET = "rye";
  process.env.TARGET = "events";
  const body = JSON.stringify({ zen: "Keep it logically awesome." });
  const post = (signature) => async () => {
    const headers = {
      "x-hub-signature-256": `sha256=${signature}`,
      "x-github-delivery": "1",
      "x-github-event": "ping",
    };
    const { status } = await app.request("/github", { method: "POST", headers, body });
    return status;
  };
  const ctx = new TestContext({ endpoints: { events: null } });
  assert.equal(await ctx.run(post(sign("rye", body)), {}), 204);
  assert.equal(await ctx.run(post(sign("oat", body)), {}), 401);
  const input = { source: "github", kind: "ping", event: JSON.parse(body) };
  assert.deepEqual(ctx.calls, [{ endpoint: "events", input, idempotencyKey: "github-1" }]);
});
