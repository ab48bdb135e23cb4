// The lines of a bundle and where they come from.

import { readFile } from "node:fs/promises";
import { dirname, relative, resolve, sep } from "node:path";

import { TraceMap, eachMapping } from "@jridgewell/trace-mapping";

/**
 * For src/stack.js: the files of the project, and for each line of the bundle that is not the
 * SDK's, which its directory `sdk` has, the number of the file and the line there.
 */
export async function linesOf(bundle, project, sdk) {
  const files = [];
  const lines = [];
  eachMapping(new TraceMap(await readFile(`${bundle}.map`, "utf8")), (mapping) => {
    if (mapping.source === null || lines[mapping.generatedLine]) return;
    const path = resolve(dirname(bundle), mapping.source);
    if (path.startsWith(sdk + sep)) return;
    const file = relative(project, path);
    if (!files.includes(file)) files.push(file);
    lines[mapping.generatedLine] = [files.indexOf(file), mapping.originalLine];
  });
  return { files, lines: Array.from(lines, (line) => line ?? 0) };
}
