// Answers HTTP requests: a greeting, and how many words a text has.

import { Hono } from "hono";

const app = new Hono();

app.get("/", (c) => c.text("hello\n"));

app.post("/words", async (c) => {
  const input = await c.req.json().catch(() => undefined);
  if (typeof input?.text !== "string") return c.json({ error: "text: expected a string" }, 400);
  const words = input.text.split(/\s+/).filter(Boolean);
  console.log(`${words.length} words`);
  return c.json({ words: words.length });
});

app.notFound((c) => c.json({ error: `there is no ${c.req.path}` }, 404));

export default app;
