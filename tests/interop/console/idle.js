// The processor time of the host while no job runs and N consoles show the overview, each in a window of its own.
// Usage: idle.js PID_OF_THE_HOST [CONSOLES [SECONDS]]; `run.sh` sets the environment (GRISTMILL_CONSOLE_IDLE).
import { readFileSync, readdirSync } from 'node:fs';
import { open, close, key, loaded } from './browser/page.js';

const [pid, consoles = '10', seconds = '60'] = process.argv.slice(2);
/** Nanoseconds on a processor of all threads. A thread that has ended is not counted, and none ends while the host is idle. */
const used = () => readdirSync(`/proc/${pid}/task`).reduce((sum, task) => sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]), 0);
/** The part of a core that the host takes, in percent. */
async function measure() {
  const [before, began] = [used(), process.hrtime.bigint()];
  await new Promise((done) => setTimeout(done, Number(seconds) * 1000));
  return 100 * (used() - before) / Number(process.hrtime.bigint() - began);
}

const alone = await measure();
const text = (await key()).text;
for (let n = 0; n < Number(consoles); n++) {
  const { page, login } = await open();
  await login(text);
  await loaded(page);
}
// The requests of the first view have ended.
await new Promise((done) => setTimeout(done, 5000));
const watched = await measure();
await close();
const percent = (part) => `${part.toFixed(3)} %`;
console.log(`idle: ${percent(alone)} of a core without a console, ${percent(watched)} with ${consoles}: ${percent((watched - alone) / Number(consoles))} for one`);
process.exit(0);
