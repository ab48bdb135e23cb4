// From values to JSON text. `JSON.stringify` says nothing about what it leaves out; this does.

/** The value as JSON text; `undefined` is null. What JSON does not know is a `TypeError`. */
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
