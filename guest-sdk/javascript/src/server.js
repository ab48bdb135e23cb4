// A module that answers HTTP requests: its default export has a function `fetch`, as that of Hono and
// of other frameworks for workers, or it exports a function `fetch`.

import { GristmillError } from "./errors.js";
import { failure } from "./handler.js";

/** Why a module that answers requests is no handler of jobs. The build then makes the other kind. */
export const ANSWERS_REQUESTS = "gristmill: the module answers requests";
/** Why a module is no handler of requests. */
export const ANSWERS_NO_REQUEST = "gristmill: the module answers no requests";

/** The function from `Request` to `Response` of a module; undefined if it has none. */
export function fetchOf(module) {
  if (typeof module.fetch === "function") return module.fetch;
  const app = module.default;
  if (typeof app === "function" || typeof app?.fetch !== "function") return undefined;
  return (...args) => app.fetch(...args);
}

/**
 * Calls `fetch` with a request and the environment. An error becomes an answer with the status 500,
 * and `log` gets its stack.
 */
export async function respond(fetch, request, environment, log) {
  try {
    const response = await fetch(request, environment);
    if (response instanceof Response) return response;
    throw new TypeError(`fetch returned ${typeof response}, and no Response`);
  } catch (error) {
    // The log alone gets it: a client may be anybody.
    const { message } = failure(error, log);
    if (error instanceof GristmillError) log(message);
    return new Response("internal error\n", { status: 500 });
  }
}
