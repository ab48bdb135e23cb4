// Passes calls of OpenAI's clients on to another server with the same API, and streams its tokens
// while they come.

import { handler } from "gristmill-sdk";

/** The input that the host makes of a call of `/openai/*`. */
interface Input {
  openai_route: string;
  openai_input?: { stream?: boolean };
}

export default handler<Input>(async function* (_ctx, { openai_route, openai_input }) {
  const { UPSTREAM_URL, UPSTREAM_KEY } = process.env;
  if (!UPSTREAM_URL) return refusal(500, "the endpoint has no UPSTREAM_URL");
  const response = await fetch(UPSTREAM_URL + openai_route, {
    method: openai_input ? "POST" : "GET",
    headers: {
      "content-type": "application/json",
      ...(UPSTREAM_KEY && { authorization: `Bearer ${UPSTREAM_KEY}` }),
    },
    body: openai_input && JSON.stringify(openai_input),
  });
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  if (!response.ok || !isStream || !response.body) return answer(response);
  // The clients read whole events; the pieces of the body end anywhere, also in the middle of `\r\n`.
  let rest = "";
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    rest = (rest + text).replaceAll("\r\n", "\n");
    const end = rest.lastIndexOf("\n\n");
    if (end < 0) continue;
    yield rest.slice(0, end + 2);
    rest = rest.slice(end + 2);
  }
  if (rest) yield `${rest}\n\n`;
});

/** The upstream's JSON as it is; the host reads the status of an error from its `code`. */
async function answer(response: Response): Promise<unknown> {
  const text = await response.text();
  let body: any;
  try {
    body = JSON.parse(text);
  } catch {
    return refusal(502, `the upstream answered ${response.status} without JSON`);
  }
  if (response.ok) return body;
  const { message = `the upstream answered ${response.status}`, type } = body?.error ?? {};
  return refusal(response.status, message, type);
}

function refusal(code: number, message: string, type = "upstream_error") {
  return { error: { code, message, type } };
}
