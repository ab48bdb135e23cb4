// Streams the tokens of a prompt, each with the numbers that a client of a language model expects.

import { Chunk, InvalidInput, handler } from "gristmill-sdk";

interface Input {
  prompt: string;
  /** The most tokens to stream; all of them when it is missing. */
  max_tokens?: number;
  /** The pause before each token, in milliseconds. */
  delay_ms?: number;
}

/** Returns nothing, so the job's output is the list of its chunks. */
export default handler<Input>(
  async function* (_ctx, { prompt, max_tokens, delay_ms = 0 }) {
    const tokens = tokenize(prompt);
    for (const [index, token] of tokens.slice(0, max_tokens).entries()) {
      if (delay_ms) await new Promise((resolve) => setTimeout(resolve, delay_ms));
      yield new Chunk(token, {
        input_tokens: tokens.length,
        output_tokens: index + 1,
        stream_index: index,
      });
    }
  },
  { validate },
);

function validate(input: any): Input {
  if (typeof input?.prompt !== "string") {
    throw new InvalidInput(`prompt: expected string, got ${typeof input?.prompt}`);
  }
  for (const field of ["max_tokens", "delay_ms"]) {
    const value = input[field] ?? 0;
    if (!Number.isInteger(value) || value < 0) {
      throw new InvalidInput(`${field}: expected a whole number, got ${JSON.stringify(value)}`);
    }
  }
  return {
    prompt: input.prompt,
    max_tokens: input.max_tokens ?? undefined,
    delay_ms: input.delay_ms,
  };
}

/**
 * Words and single punctuation marks, each with the white space before it: joined, they are the text
 * again, except for white space at its end.
 */
export function tokenize(text: string): string[] {
  return text.match(/\s*(?:[\p{Alphabetic}\p{N}]+|\S)/gu) ?? [];
}
