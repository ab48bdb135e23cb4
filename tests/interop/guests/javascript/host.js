// Calls of the real host that run.sh started, for the tests of components.

import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export const { GRISTMILL, GRISTMILL_API_KEY, GRISTMILL_BUILT, GRISTMILL_URL } = process.env;

export const SDK = new URL("../../../../guest-sdk/javascript/build.js", import.meta.url).pathname;
const execute = promisify(execFile);

/** Runs a program; resolves to its exit status and its output, also when it fails. */
export async function run(program, ...args) {
  try {
    return { code: 0, ...(await execute(program, args, { maxBuffer: 1 << 26 })) };
  } catch (error) {
    if (typeof error.code !== "number") throw error;
    return error;
  }
}

export async function deploy(name, file, ...options) {
  const { code, stderr } = await run(GRISTMILL, "deploy", file, "--name", name, ...options);
  if (code) throw new Error(stderr);
}

/** Runs a job; resolves to the host's answer. */
export async function job(endpoint, input) {
  const response = await fetch(`${GRISTMILL_URL}/v2/${endpoint}/runsync`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${GRISTMILL_API_KEY}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({ input }),
  });
  return response.json();
}

/** The lines of a job's log, as `[level, message]`. */
export async function logs(endpoint, { id }) {
  const { stdout } = await run(GRISTMILL, "logs", endpoint, "--job", id, "--json");
  const lines = stdout
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  return lines.map(({ level, line }) => [level, line]);
}

/**
 * Builds a handler with this source, by the SDK's command; calls `check` with its result and the
 * component's path.
 */
export async function withHandler(source, check, name = "handler.js") {
  const project = await mkdtemp(join(tmpdir(), "gristmill-test-"));
  try {
    await writeFile(join(project, name), source);
    await writeFile(join(project, "package.json"), '{"type":"module"}');
    const component = join(project, "handler.wasm");
    const built = await run(process.execPath, SDK, "build", project, "-o", component);
    return await check(built, component);
  } finally {
    await rm(project, { recursive: true });
  }
}

/** A server on a free port; resolves to its address and a function that closes it. */
export async function listen(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { address: `127.0.0.1:${server.address().port}`, close };
}
