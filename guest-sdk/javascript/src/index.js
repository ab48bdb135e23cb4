// Write Gristmill handlers in JavaScript and TypeScript.

export { Context, context } from "./context.js";
export { CallError, Cancelled, EmitError, Failed, GristmillError, InvalidInput } from "./errors.js";
export { Chunk, handler, serve, serveRaw } from "./handler.js";
export * as http from "./http.js";
