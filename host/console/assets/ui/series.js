// The forms in which the host sends numbers over time, made into arrays.

/**
 * Submitted jobs, and failed and ended attempts, of one endpoint. They begin with the first job; before it there was nothing.
 * @param {any} one @param {number} steps the length of the window @returns {{ submitted: number[], failed: number[], ended: number[] } | undefined}
 */
export function values(one, steps) {
  if (!one) return undefined;
  const whole = (l) => [...Array(Math.max(0, steps - l.length)).fill(0), ...l];
  return { submitted: whole(one.submitted), failed: whole(one.failed), ended: whole(one.ended) };
}
/** The lengths of the windows, in milliseconds. @type {Record<string, number>} */
export const WINDOW = { '15m': 9e5, '6h': 216e5, '7d': 6048e5 };
