// The parts of the web platform that every handler gets and QuickJS lacks: promises that can be run
// to their end, timers, random numbers, text encoding. Imported before anything else. The build adds
// the modules beside this one that the handler needs: see ../build/platform.js.

import "./promise.js";
import "./text.js";

import { wait as waitFor } from "./event-loop.js";
import { forgetSeed } from "./random.js";

/** Runs the work of one job, as `wait` of event-loop.js does. */
export function wait(work, stuck, abandoned) {
  forgetSeed();
  return waitFor(work, stuck, abandoned);
}
