// The forms in which the host sends numbers over time, made into arrays.

/**
 * Submitted and failed jobs of one endpoint, from arrays or from points.
 * @param {any} one @returns {{ submitted: number[], failed: number[] } | undefined}
 */
export function values(one) {
  if (!one) return undefined;
  const points = Array.isArray(one) ? one : one.points;
  if (points) return { submitted: points.map((p) => p.submitted ?? 0), failed: points.map((p) => (p.failed ?? 0) + (p.timedOut ?? 0)) };
  return { submitted: one.submitted ?? [], failed: one.failed ?? [] };
}
/** The time of a point, from a number or a text. @param {any} p @param {any} series @param {number} i */
export const at = (p, series, i) => p.at === undefined ? start(series) + i * series.stepMs : typeof p.at === 'number' ? p.at : Date.parse(p.at);
/** @param {any} series */
export const start = (series) => typeof series.from === 'number' ? series.from : Date.parse(series.from);
