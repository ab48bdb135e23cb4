// Messages of a failed build, in words about handlers: which file and line, and what is possible
// instead.

import { builtinModules } from "node:module";

/** What handlers use instead of Node's modules. */
const INSTEAD = {
  assert: "throw an Error instead",
  async_hooks: "context() of gristmill-sdk finds the running job",
  buffer: "use Uint8Array, TextEncoder, TextDecoder, atob and btoa",
  child_process: "a handler runs no other programs",
  cluster: "a handler is one thread",
  crypto: "use the global crypto: getRandomValues, randomUUID, subtle.digest",
  dns: "use fetch; the host looks up names",
  events: "use EventTarget, or the package eventemitter3",
  fs: "only the functions for files of a volume are, of node:fs and node:fs/promises",
  http: "use fetch",
  http2: "use fetch",
  https: "use fetch",
  net: "use fetch; a handler opens no sockets",
  os: "a handler sees no operating system",
  path: "use the package path-browserify, or join texts with /",
  perf_hooks: "use the global performance",
  process: "process.env has the endpoint's environment",
  querystring: "use URLSearchParams",
  stream: "use ReadableStream, WritableStream and TransformStream",
  timers: "use setTimeout and setInterval",
  tls: "use fetch",
  url: "use the globals URL and URLSearchParams",
  util: "use TextEncoder, TextDecoder and structuredClone",
  worker_threads: "a handler is one thread; submit further jobs instead",
  zlib: "use the package fflate",
};

/** The sentence for a module of Node, or undefined for any other. */
export function hintForModule(specifier) {
  const name = specifier.replace(/^node:/, "");
  const top = name.split("/")[0];
  if (!specifier.startsWith("node:") && !builtinModules.includes(top)) return undefined;
  const instead = INSTEAD[top] ?? "packages for browsers and workers do not need it";
  return `node:${name} is not available in the sandbox; ${instead}`;
}

/** The lines of a failed bundling: esbuild's errors, with our words for Node's modules. */
export function bundleErrors(errors) {
  return errors.map(({ text, location }) => {
    const place = location ? `${location.file}:${location.line}: ` : "";
    const [, missing] = /^Could not resolve "(.+)"/.exec(text) ?? [];
    const [, where, name] =
      /^No matching export in "(?:.*\/)?files\/(fs|promises)\.js" for import "(.+)"/.exec(text) ??
      [];
    if (name) {
      const module = where === "fs" ? "node:fs" : "node:fs/promises";
      return `${place}${module} has no ${name} in the sandbox; the README of gristmill-sdk lists its functions`;
    }
    const hint = missing && hintForModule(missing);
    if (hint) return place + hint;
    if (missing && /^[^./]/.test(missing)) {
      const [name] = /^(@[^/]+\/)?[^/]+/.exec(missing);
      return `${place}the package ${missing} is not installed; run: npm install ${name}`;
    }
    return place + text;
  });
}
