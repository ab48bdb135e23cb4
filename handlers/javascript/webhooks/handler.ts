// Receives webhooks of GitHub and Stripe: it checks their signatures, and makes a job of each event.

import { Hono } from "hono";
import { context } from "gristmill-sdk";

import { isFromGitHub, isFromStripe } from "./signatures.ts";

const app = new Hono();

/** A variable of the endpoint; without it, no signature is right. */
const setting = (name: string) => process.env[name] ?? "";

/** Makes a job of an event. A sender that repeats it, since it got no answer in time, makes no second one. */
async function accept(source: string, id: string, kind: string, body: Uint8Array) {
  const target = setting("TARGET");
  if (!target) return console.log(`${source}: ${kind} ${id}`);
  const event = JSON.parse(new TextDecoder().decode(body));
  await context().submit(target, { source, kind, event }, { idempotencyKey: `${source}-${id}` });
}

app.post("/github", async (c) => {
  const body = new Uint8Array(await c.req.arrayBuffer());
  const signature = c.req.header("x-hub-signature-256");
  if (!isFromGitHub(signature, body, setting("GITHUB_SECRET"))) return c.text("wrong signature\n", 401);
  const id = c.req.header("x-github-delivery") ?? "";
  await accept("github", id, c.req.header("x-github-event") ?? "", body);
  return c.body(null, 204);
});

app.post("/stripe", async (c) => {
  const body = new Uint8Array(await c.req.arrayBuffer());
  const signature = c.req.header("stripe-signature");
  const tolerance = Number(setting("TOLERANCE_SECONDS") || 300);
  if (!isFromStripe(signature, body, setting("STRIPE_SECRET"), { tolerance })) {
    return c.text("wrong signature\n", 401);
  }
  const { id, type } = JSON.parse(new TextDecoder().decode(body));
  await accept("stripe", id, type, body);
  return c.body(null, 204);
});

export default app;
