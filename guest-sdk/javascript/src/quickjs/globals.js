// The parts of the web platform that handlers need and QuickJS lacks: promises that can be run to
// their end, timers, random numbers, text encoding. Imported before anything else.

import "./promise.js";
import "./random.js";
import "./text.js";

export { wait } from "./event-loop.js";
