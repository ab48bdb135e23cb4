// OpenAI's client inside a handler: a library that was not made for this platform.

import OpenAI from "openai";

export default async function* handler(job) {
  const client = new OpenAI({ apiKey: "grist", baseURL: job.input.base, maxRetries: 0 });
  const chat = { model: "mill", messages: [{ role: "user", content: "grind" }] };
  for await (const chunk of await client.chat.completions.create({ ...chat, stream: true })) {
    yield chunk.choices[0].delta.content;
  }
}
