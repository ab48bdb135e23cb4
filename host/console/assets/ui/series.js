// The forms in which the host sends numbers over time, made into arrays.

/**
 * Submitted and failed jobs of one endpoint, from arrays or from points.
 * @param {any} one @param {number} [steps] the length of the window @returns {{ submitted: number[], failed: number[] } | undefined}
 */
export function values(one, steps = 0) {
  if (!one) return undefined;
  const points = Array.isArray(one) ? one : one.points;
  const [submitted, failed] = points ? [points.map((p) => p.submitted ?? 0), points.map((p) => (p.failed ?? 0) + (p.timedOut ?? 0))] : [one.submitted ?? [], one.failed ?? []];
  // Points begin with the first job; before it there was nothing.
  const whole = (l) => [...Array(Math.max(0, steps - l.length)).fill(0), ...l];
  return { submitted: whole(submitted), failed: whole(failed) };
}
/** The time of a point, from a number or a text. @param {any} p @param {any} series @param {number} i */
export const at = (p, series, i) => p.at === undefined ? start(series) + i * series.stepMs : typeof p.at === 'number' ? p.at : Date.parse(p.at);
/** The lengths of the windows, in milliseconds. @type {Record<string, number>} */
export const WINDOW = { '15m': 9e5, '6h': 216e5, '7d': 6048e5 };
/** @param {any} series */
export const start = (series) => typeof series.from === 'number' ? series.from : Date.parse(series.from);
