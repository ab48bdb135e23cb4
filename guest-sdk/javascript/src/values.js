// Turns values into JSON text. `JSON.stringify` silently writes `null` for NaN and infinity;
// this module refuses them.

/** The value as JSON text; `undefined` is null. A value without a JSON form is a `TypeError`. */
export function encode(value) {
  const text = JSON.stringify(value ?? null, refuse);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  return text;
}

function refuse(_key, value) {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`${value} is not JSON`);
  }
  if (typeof value === "bigint") throw new TypeError("a bigint is not JSON");
  return value;
}
