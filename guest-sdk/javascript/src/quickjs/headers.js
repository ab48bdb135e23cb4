// `Headers` of the Fetch standard.

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

export class Headers {
  /** By name in lower case: the values in the order in which they were added. */
  #values = new Map();

  constructor(init) {
    if (init === undefined || init === null) return;
    if (typeof init !== "object") {
      throw new TypeError("headers are an object, a list of pairs, or Headers");
    }
    const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
    for (const pair of pairs) {
      const [name, value, ...rest] = pair;
      if (value === undefined || rest.length) {
        throw new TypeError("a header is a pair of a name and a value");
      }
      this.append(name, value);
    }
  }

  append(name, value) {
    const key = checkedName(name);
    this.#values.set(key, [...(this.#values.get(key) ?? []), checkedValue(name, value)]);
  }

  delete(name) {
    this.#values.delete(checkedName(name));
  }

  get(name) {
    return this.#values.get(checkedName(name))?.join(", ") ?? null;
  }

  getSetCookie() {
    return [...(this.#values.get("set-cookie") ?? [])];
  }

  has(name) {
    return this.#values.has(checkedName(name));
  }

  set(name, value) {
    this.#values.set(checkedName(name), [checkedValue(name, value)]);
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this) callback.call(thisArg, value, name, this);
  }

  *entries() {
    for (const name of [...this.#values.keys()].sort()) {
      if (name !== "set-cookie") yield [name, this.get(name)];
      else for (const value of this.getSetCookie()) yield [name, value];
    }
  }

  *keys() {
    for (const [name] of this.entries()) yield name;
  }

  *values() {
    for (const [, value] of this.entries()) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return "Headers";
  }
}

function checkedName(name) {
  const text = String(name);
  if (!NAME.test(text)) throw new TypeError(`${JSON.stringify(text)} is not the name of a header`);
  return text.toLowerCase();
}

function checkedValue(name, value) {
  const text = String(value).replace(/^[\t\r\n ]+|[\t\r\n ]+$/g, "");
  if (/[^\x01-\x09\x0b\x0c\x0e-\xff]/.test(text)) {
    throw new TypeError(
      `the header ${name} has a character that is not allowed: line breaks, NUL, and those above U+00FF`,
    );
  }
  return text;
}
