// The hooks behind typescript.js; Node runs them on a thread of their own.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { transform } from "esbuild";

export async function load(url, context, next) {
  if (!url.endsWith(".ts")) return next(url, context);
  const source = await readFile(fileURLToPath(url), "utf8");
  const { code } = await transform(source, { loader: "ts", sourcemap: "inline", target: "node20" });
  return { format: "module", source: code, shortCircuit: true };
}
