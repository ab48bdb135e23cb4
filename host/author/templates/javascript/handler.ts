// Streams the words of a text, and returns how many there are.

import { InvalidInput, handler } from "gristmill-sdk";

interface Input {
  text: string;
  /** The pause before each word, in milliseconds. */
  pause_ms?: number;
}

export default handler<Input>(
  async function* (ctx, { text, pause_ms = 0 }) {
    const words = text.split(/\s+/).filter(Boolean);
    for (const word of words) {
      if (pause_ms) await new Promise((resolve) => setTimeout(resolve, pause_ms));
      yield word;
    }
    ctx.info(`${words.length} words`);
    return { words: words.length };
  },
  { validate },
);

function validate(input: any): Input {
  if (typeof input.text !== "string") {
    throw new InvalidInput(`text: expected string, got ${typeof input.text}`);
  }
  return input;
}
