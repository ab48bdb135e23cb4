// Uses that the SDK's type declarations must accept or refuse: only compiled, never run.

import {
  CallError,
  Chunk,
  type Context,
  type Job,
  type StandardSchema,
  handler,
  http,
  serve,
  serveRaw,
} from "gristmill-sdk";
import { readFile } from "node:fs/promises";
import { TestContext } from "gristmill-sdk/testing";

serve((job: Job<{ text: string }>, ctx: Context) => ({
  upper: job.input.text,
  left: ctx.remaining,
}));
serve(async function* (job) {
  yield new Chunk(job.id, { n: 1 });
});
serveRaw((_ctx, text) => text);
// A client of a web API returns such streams.
serve(() => new ReadableStream<string>());
handler(() => http.get("https://a", { headers: new Headers({ a: "1" }) }).status);
handler(() => http.get("https://a", { headers: new Map([["a", "1"]]) }).status);

const double = handler<number, number>((_ctx, input) => input * 2, { validate: Number });
const output: number = await new TestContext({ http: { "https://a": new http.Response(200) } }).run(
  double,
  1,
);
console.log(output);

handler<number, number>((_ctx, input) => input * 2, { validate: async (input) => Number(input) });
declare const schema: StandardSchema<{ sacks: number }>;
handler((_ctx, { sacks }) => sacks * 2, { validate: schema });
// @ts-expect-error: the schema is of another type
handler<number>((_ctx, input) => input, { validate: schema });
// Null is the same as no option.
handler(() => http.get("https://a", { headers: null, timeout: null }).status);
handler((ctx) => ctx.submit("count", {}, { idempotencyKey: null }));
handler((ctx) => ctx.emit("x", null));

// @ts-expect-error: the promise is not of a number
handler<number>((_ctx, input) => input, { validate: async (input) => String(input) });
// @ts-expect-error: the input is a number
handler<number>((_ctx, input) => input.length);
// @ts-expect-error: there is no such level
handler((ctx) => ctx.log("fatal", "x"));
// @ts-expect-error: metrics are an object
handler((ctx) => ctx.emit("x", 1));
// @ts-expect-error: text in, text out
serveRaw((_ctx, text) => text.length);

handler(async (ctx) => {
  const { words } = await ctx.call<{ words: number }>("count", { text: "rye" });
  const id: string = await ctx.submit("count", { words }, { idempotencyKey: ctx.jobId });
  return new CallError("denied", id).job?.status === "FAILED";
});
// @ts-expect-error: the input is an object
handler((ctx) => ctx.call("count", "rye"));

// The globals of a component, and no others.
const upper = new TransformStream<string, string>({
  transform: (piece, controller) => controller.enqueue(piece.toUpperCase()),
});
const response = await fetch(new URL("https://a/"), {
  method: "POST",
  body: new URLSearchParams({ a: "1" }),
  signal: AbortSignal.any([AbortSignal.timeout(1000)]),
});
for await (const piece of response.body!.pipeThrough(new TextDecoderStream()).pipeThrough(upper)) {
  const text: string = piece;
  console.table([text]);
}
const bytes: Uint8Array = await readFile("/workspace/a");
const text: string = await readFile("/workspace/a", "utf8");
await crypto.subtle.digest("SHA-256", bytes);
setTimeout(console.log, "30", await Array.fromAsync([text]), structuredClone({ a: 1 }));
// @ts-expect-error: not in the sandbox
new XMLHttpRequest();
// @ts-expect-error: not in the sandbox
Buffer.from("a");
// @ts-expect-error: not in the sandbox
new WebSocket("wss://a/");
// @ts-expect-error: a digest that is not there
await crypto.subtle.digest("MD5", bytes);
