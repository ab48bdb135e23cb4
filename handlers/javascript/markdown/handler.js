// Renders Markdown as HTML, with marked, and lists the headings.

import { marked } from "marked";

export default function handler(job) {
  const { markdown } = job.input;
  if (typeof markdown !== "string") return { error: "markdown: expected a string" };
  const tokens = marked.lexer(markdown);
  const headings = tokens
    .filter(({ type }) => type === "heading")
    .map(({ depth, text }) => ({ depth, text }));
  return { html: marked.parser(tokens), headings };
}
