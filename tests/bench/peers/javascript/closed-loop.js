// Keeps a number of jobs in flight for a while and prints one JSON object, as `load --url` does: a job
// counts when it was begun in the measured time, which follows the warm-up.

import { deepStrictEqual } from 'node:assert';
import { parseArgs } from 'node:util';

const text = { type: 'string' };
const { values } = parseArgs({
  options: { redis: text, postgres: text, body: text, connections: text, 'warm-up': text, seconds: text },
});
const input = JSON.parse(values.body);
const seconds = Number(values.seconds);

export const inFlight = Number(values.connections);
/** The port of Redis. */
export const redis = Number(values.redis);
/** The URL of the database. */
export const postgres = values.postgres;

/** `run(input)` submits a job and waits for its output. */
export async function keepBusy(run) {
  const warm = performance.now() + Number(values['warm-up']) * 1000;
  const end = warm + seconds * 1000;
  const latencies = [];
  const one = async () => {
    for (;;) {
      const begun = performance.now();
      if (begun >= end) return;
      deepStrictEqual(await run(input), input);
      if (begun >= warm) latencies.push(performance.now() - begun);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, one));
  latencies.sort((a, b) => a - b);
  const quantile = (part) => latencies[Math.floor(part * (latencies.length - 1))];
  console.log(
    JSON.stringify({
      jobsPerS: latencies.length / seconds,
      p50Ms: quantile(0.5),
      p99Ms: quantile(0.99),
    }),
  );
}
