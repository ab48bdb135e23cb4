// Uses that the SDK's type declarations must accept or refuse: only compiled, never run.

import { Chunk, type Context, type Job, handler, http, serve, serveRaw } from "gristmill-sdk";
import { TestContext } from "gristmill-sdk/testing";

serve((job: Job<{ text: string }>, ctx: Context) => ({
  upper: job.input.text,
  left: ctx.remaining,
}));
serve(async function* (job) {
  yield new Chunk(job.id, { n: 1 });
});
serveRaw((_ctx, text) => text);

const double = handler<number, number>((_ctx, input) => input * 2, { validate: Number });
const output: number = await new TestContext({ http: { "https://a": new http.Response(200) } }).run(
  double,
  1,
);
console.log(output);

// @ts-expect-error: the input is a number
handler<number>((_ctx, input) => input.length);
// @ts-expect-error: there is no such level
handler((ctx) => ctx.log("fatal", "x"));
// @ts-expect-error: metrics are an object
handler((ctx) => ctx.emit("x", 1));
// @ts-expect-error: text in, text out
serveRaw((_ctx, text) => text.length);
