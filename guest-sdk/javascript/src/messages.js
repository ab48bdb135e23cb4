// The text of an error, for the client and for the log.

import { readable } from "./stack.js";
import { encode } from "./values.js";

/** Issues of a validation that a message names; the others are counted. */
const ISSUES_MAX = 10;
/** Causes that the log shows of one error, and errors of one that has several. */
const CAUSES_MAX = 10;

/** Globals that other platforms have, and what handlers use instead. */
const MISSING = {
  Buffer: "use Uint8Array, TextEncoder, atob and btoa",
  Intl: "QuickJS has no Intl; write the format out, or use a package such as date-fns",
  WebAssembly: "QuickJS runs JavaScript alone",
  WebSocket: "use fetch",
  XMLHttpRequest: "use fetch",
  __dirname: "the module runs from memory, without a directory",
  __filename: "the module runs from memory, without a file",
  document: "a handler has no page",
  localStorage: "files of a volume are kept between jobs",
  require: "use import",
  setImmediate: "use setTimeout with 0",
  window: "use globalThis",
};

/** One sentence for the client, such as `TypeError: cannot read property 'x' of undefined`. */
export function messageOf(error) {
  if (!(error instanceof Error)) return textOf(error);
  return `${nameOf(error)}: ${issuesOf(error) ?? error.message}${hintFor(error)}`;
}

/** An error with its stack, its causes and the errors that it unites, in lines. */
export function describe(error, depth = 0, above = []) {
  if (!(error instanceof Error)) return textOf(error);
  const stack = typeof error.stack === "string" ? error.stack : "";
  // V8 begins a stack with the message, the other engines do not.
  const frames = stack.startsWith(nameOf(error))
    ? stack.replace(/^[^]*?(?=\n\s+at |$)/, "")
    : stack;
  const lines = [`${messageOf(error)}\n${readable(frames.replace(/^\n/, ""))}`.trimEnd()];
  const next = (inner) => describe(inner, depth + 1, [...above, error]);
  if (depth === CAUSES_MAX) return lines[0];
  // An error may contain itself.
  const isSeveral = error instanceof AggregateError && Array.isArray(error.errors);
  if (isSeveral && !above.includes(error)) {
    for (const inner of error.errors.slice(0, CAUSES_MAX)) lines.push(`one of them: ${next(inner)}`);
    const more = error.errors.length - CAUSES_MAX;
    if (more > 0) lines.push(`and ${more} more`);
  }
  if (error.cause !== undefined) lines.push(`caused by ${next(error.cause)}`);
  return lines.join("\n");
}

/**
 * The issues of a validation as one sentence, or undefined for any other error. Zod, Valibot and all
 * libraries of Standard Schema have `issues` with a message and a path of keys.
 */
export function issuesOf(error) {
  const issues = error?.issues;
  if (!Array.isArray(issues) || !issues.length) return undefined;
  if (!issues.every((issue) => typeof issue?.message === "string")) return undefined;
  const parts = issues.slice(0, ISSUES_MAX).map(({ path, message }) => {
    const place = pathOf(path);
    return place ? `${place}: ${message}` : message;
  });
  const more = issues.length - parts.length;
  return parts.join("; ") + (more > 0 ? `; and ${more} more` : "");
}

/** `items[2].name` of a path. */
function pathOf(path) {
  if (!Array.isArray(path)) return typeof path === "string" ? path : "";
  const keys = path.map((step) => (typeof step === "object" && step !== null ? step.key : step));
  return keys
    .map((key, index) =>
      typeof key === "number" ? `[${key}]` : index ? `.${String(key)}` : String(key),
    )
    .join("");
}

function hintFor(error) {
  if (error.name !== "ReferenceError") return "";
  const [, name] = /^'?([\w$]+)'? is not defined/.exec(error.message) ?? [];
  const instead = Object.hasOwn(MISSING, name ?? "") ? MISSING[name] : undefined;
  return instead ? ` (not available in the sandbox: ${instead})` : "";
}

const nameOf = (error) => (typeof error.name === "string" && error.name ? error.name : "Error");

/** A value that was thrown and is no error. */
export function textOf(value) {
  if (typeof value === "string") return value;
  try {
    return encode(value);
  } catch {
    return String(value);
  }
}
