// `console`: each call writes one line, or some lines, to the job's log.

import { describe } from "./messages.js";

const LEVELS = {
  debug: "debug",
  dirxml: "info",
  error: "error",
  info: "info",
  log: "info",
  warn: "warn",
};

/** Nested objects of which the content is shown, entries of one of them, and characters of a line. */
const DEPTH_MAX = 8;
const ENTRIES_MAX = 1000;
const INDENT = "  ";

/** Replaces the global `console`; `write` gets a level of the job's log and a text. */
export function install(write) {
  const counts = new Map();
  const timers = new Map();
  let indent = "";
  const line = (level, text) => write(level, indent ? text.replace(/^/gm, indent) : text);
  const took = (label, call, values) => {
    const began = timers.get(label);
    if (began === undefined) return line("warn", `${call}: there is no timer ${label}`);
    const took = `${label}: ${(performance.now() - began).toFixed(3)} ms`;
    line("info", [took, ...values.map(inspect)].join(" "));
  };
  const methods = {
    assert(condition, ...values) {
      if (condition) return;
      line("error", values.length ? `assertion failed: ${format(values)}` : "assertion failed");
    },
    clear() {},
    count(label = "default") {
      counts.set(label, (counts.get(label) ?? 0) + 1);
      line("info", `${label}: ${counts.get(label)}`);
    },
    countReset: (label = "default") => void counts.delete(label),
    dir: (value) => line("info", inspect(value)),
    group(...values) {
      if (values.length) line("info", format(values));
      indent += INDENT;
    },
    groupEnd: () => void (indent = indent.slice(INDENT.length)),
    table(rows, columns) {
      line("info", typeof rows === "object" && rows ? table(rows, columns) : inspect(rows));
    },
    time: (label = "default") => void timers.set(String(label), performance.now()),
    timeLog: (label = "default", ...values) => took(String(label), "timeLog", values),
    timeEnd(label = "default") {
      took(String(label), "timeEnd", []);
      timers.delete(String(label));
    },
    trace(...values) {
      const error = new Error(format(values));
      error.name = "Trace";
      line("trace", describe(error));
    },
  };
  methods.groupCollapsed = methods.group;
  for (const [name, level] of Object.entries(LEVELS)) {
    methods[name] = (...values) => line(level, format(values));
  }
  globalThis.console ??= {};
  Object.assign(globalThis.console, methods);
}

/** The values in one text; the first may have placeholders such as `%s`. */
export function format(values) {
  const [first, ...rest] = values;
  if (typeof first !== "string") return values.map(inspect).join(" ");
  const text = first.replace(/%[sdifjoOc%]/g, (mark) => {
    if (mark === "%%") return "%";
    if (!rest.length) return mark;
    const value = rest.shift();
    switch (mark[1]) {
      case "s":
        return typeof value === "object" ? inspect(value) : String(value);
      case "d":
        return typeof value === "bigint" ? `${value}n` : String(Number(value));
      case "i":
        return typeof value === "bigint" ? `${value}n` : String(Number.parseInt(value, 10));
      case "f":
        return String(Number.parseFloat(value));
      case "c":
        return ""; // a style
      default:
        return inspect(value);
    }
  });
  return [text, ...rest.map(inspect)].join(" ");
}

/** A value for a reader: JSON where it has such a form. */
export function inspect(value) {
  if (typeof value !== "object" || value === null) return primitive(value);
  try {
    return inspected(value, [], 0);
  } catch {
    // Such as a getter that throws.
    return Object.prototype.toString.call(value);
  }
}

function primitive(value) {
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return `[function ${value.name || "without a name"}]`;
  return String(value);
}

function inspected(value, above, depth) {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || value === null) return primitive(value);
  if (value instanceof Error) return describe(value);
  if (above.includes(value)) return "[circular]";
  if (depth > DEPTH_MAX) return "[…]";
  if (typeof value.toJSON === "function") return inspected(value.toJSON(), above, depth + 1);
  const inner = (element) => inspected(element, [...above, value], depth + 1);
  const list = (elements, show) => {
    const shown = [];
    for (const element of elements) {
      if (shown.length === ENTRIES_MAX) {
        shown.push("…");
        break;
      }
      shown.push(show(element));
    }
    return shown.join(",");
  };
  if (Array.isArray(value)) return `[${list(value, inner)}]`;
  const kind = Object.prototype.toString.call(value).slice(8, -1);
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    return `${kind} [${list(value, inner)}]`;
  }
  if (value instanceof ArrayBuffer) return `ArrayBuffer of ${value.byteLength} bytes`;
  if (value instanceof Set) return `Set {${list(value, inner)}}`;
  if (value instanceof Map) {
    return `Map {${list(value, ([key, entry]) => `${inner(key)} => ${inner(entry)}`)}}`;
  }
  if (value instanceof RegExp) return String(value);
  const keys = Object.keys(value);
  const entries = list(keys, (key) => `${JSON.stringify(key)}:${inner(value[key])}`);
  const name = Object.getPrototypeOf(value)?.constructor?.name;
  const tag = kind !== "Object" ? kind : name === "Object" ? "" : name;
  return `${tag ? `${tag} ` : ""}{${entries}}`;
}

/** Rows and columns, as lines of text. */
function table(rows, wanted) {
  const entries = rows instanceof Map ? [...rows] : Object.entries(rows);
  const columns = new Set(wanted);
  let hasValues = false;
  for (const [, row] of entries) {
    if (typeof row !== "object" || row === null) hasValues = true;
    else if (!wanted) for (const key of Object.keys(row)) columns.add(key);
  }
  const cells = [["", ...columns, ...(hasValues ? ["value"] : [])]];
  for (const [index, row] of entries.slice(0, ENTRIES_MAX)) {
    const isObject = typeof row === "object" && row !== null;
    const cell = (key) => (isObject && key in row ? inspected(row[key], [], 1) : "");
    const value = hasValues ? [isObject ? "" : inspected(row, [], 1)] : [];
    cells.push([String(index), ...[...columns].map(cell), ...value]);
  }
  const widths = cells[0].map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  return cells
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column]))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
