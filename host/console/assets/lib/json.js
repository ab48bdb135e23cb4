// JSON as it was written. `JSON.parse` rounds numbers above 2^53, drops duplicate keys and orders keys
// anew; so values of handlers are cut out of the document's text (`members`), and shown from their
// tokens (`lines`). Nothing here changes a character of a value but the white space between tokens.

/** @typedef {{ kind: 'punct' | 'string' | 'key' | 'number' | 'word', text: string }} Token */

const token = /[\s]+|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|([{}[\],:])/y;

/**
 * The tokens of a text. @param {string} text
 * @returns {Generator<{ kind: 'string' | 'number' | 'word' | 'punct', text: string, start: number }>}
 */
function* tokens(text) {
  let at = 0;
  while (at < text.length) {
    token.lastIndex = at;
    const m = token.exec(text);
    if (!m) throw new SyntaxError(place(text, at));
    const start = at;
    at = token.lastIndex;
    const [, string, number, word, punct] = m;
    const found = string ?? number ?? word ?? punct;
    // The generator may be suspended while another text is read with the same expression.
    if (found !== undefined) yield { kind: string !== undefined ? 'string' : number !== undefined ? 'number' : word !== undefined ? 'word' : 'punct', text: found, start };
  }
}

/** @param {string} text @param {number} at */
function place(text, at) {
  const before = text.slice(0, at).split('\n');
  return `not JSON at line ${before.length}, column ${before[before.length - 1].length + 1}`;
}

/** What is wrong with a text, or '' for JSON. @param {string} text */
export function problem(text) {
  try {
    // Which of the two a token may follow is the grammar of JSON: a value, or what comes after one.
    /** @type {string[]} */
    const open = [];
    let want = 'value';
    let last = 0;
    for (const t of tokens(text)) {
      last = t.start;
      const bad = () => { throw new SyntaxError(place(text, t.start)); };
      if (want === 'end') bad();
      if (want === 'key' || want === 'firstKey') {
        if (t.kind === 'string') { want = 'colon'; continue; }
        if (want === 'firstKey' && t.text === '}') { open.pop(); want = open.length ? 'after' : 'end'; continue; }
        bad();
      }
      if (want === 'colon') { if (t.text !== ':') bad(); want = 'value'; continue; }
      if (want === 'value' || want === 'firstValue') {
        if (t.text === '{' && t.kind === 'punct') { open.push('}'); want = 'firstKey'; continue; }
        if (t.text === '[' && t.kind === 'punct') { open.push(']'); want = 'firstValue'; continue; }
        if (want === 'firstValue' && t.text === ']') { open.pop(); want = open.length ? 'after' : 'end'; continue; }
        if (t.kind === 'punct') bad();
        want = open.length ? 'after' : 'end';
        continue;
      }
      if (t.text === ',') { want = open[open.length - 1] === '}' ? 'key' : 'value'; continue; }
      if (t.text === open[open.length - 1]) { open.pop(); want = open.length ? 'after' : 'end'; continue; }
      bad();
    }
    return want === 'end' ? '' : last === 0 && !text.trim() ? 'empty' : place(text, text.length);
  } catch (e) { return /** @type {Error} */ (e).message; }
}

/**
 * The members of an object as texts: `members('{"a":1.0}')` is `[['a', '1.0']]`.
 * @param {string} text @returns {[string, string][]}
 */
export function members(text) {
  /** @type {[string, string][]} */
  const all = [];
  let depth = 0, key = '', from = -1, expectKey = true;
  for (const t of tokens(text)) {
    if (depth === 1 && t.kind === 'string' && expectKey) { key = JSON.parse(t.text); expectKey = false; from = -1; continue; }
    if (depth === 1 && from < 0 && t.text === ':') { from = t.start + 1; continue; }
    if (t.kind !== 'punct') continue;
    if (t.text === '{' || t.text === '[') depth++;
    if (t.text === '}' || t.text === ']') depth--;
    if ((depth === 1 && t.text === ',') || depth === 0) {
      if (from >= 0) all.push([key, text.slice(from, t.start).trim()]);
      from = -1;
      expectKey = true;
    }
  }
  return all;
}
/** One member of an object as text. @param {string} text @param {string} name */
export function member(text, name) {
  try { return members(text).find(([n]) => n === name)?.[1]; } catch { return undefined; }
}
/** The elements of an array as texts. @param {string} text @returns {string[]} */
export function elements(text) {
  const all = [];
  let depth = 0, from = -1;
  for (const t of tokens(text)) {
    if (t.kind === 'punct' && (t.text === '{' || t.text === '[')) { if (++depth === 1) { from = t.start + 1; continue; } }
    if (t.kind !== 'punct') continue;
    if (t.text === '}' || t.text === ']') depth--;
    if ((depth === 1 && t.text === ',') || depth === 0) {
      const one = text.slice(from, t.start).trim();
      if (one) all.push(one);
      from = t.start + 1;
    }
  }
  return all;
}

/** @typedef {{ indent: number, tokens: Token[], end?: number, count?: number }} Line `end` is the last line of what opens here */

/**
 * A value as indented lines; empty objects and arrays stay on one line. Throws for what is not JSON.
 * @param {string} text @returns {Line[]}
 */
export function lines(text) {
  const all = /** @type {Line[]} */ ([{ indent: 0, tokens: [] }]);
  /** @type {number[]} */
  const open = [];
  const list = [...tokens(text)];
  const line = () => all[all.length - 1];
  for (let i = 0; i < list.length; i++) {
    const t = list[i];
    const next = list[i + 1];
    if (t.kind === 'string' && next?.text === ':' && next.kind === 'punct') {
      line().tokens.push({ kind: 'key', text: t.text }, { kind: 'punct', text: ': ' });
      i++;
    } else if (t.kind === 'punct' && (t.text === '{' || t.text === '[')) {
      line().tokens.push({ kind: 'punct', text: t.text });
      if (next && (next.text === '}' || next.text === ']') && next.kind === 'punct') { line().tokens.push({ kind: 'punct', text: next.text }); i++; continue; }
      line().count = 1;
      open.push(all.length - 1);
      all.push({ indent: open.length, tokens: [] });
    } else if (t.kind === 'punct' && (t.text === '}' || t.text === ']')) {
      const from = open.pop() ?? 0;
      all.push({ indent: open.length, tokens: [{ kind: 'punct', text: t.text }] });
      all[from].end = all.length - 1;
    } else if (t.kind === 'punct' && t.text === ',') {
      line().tokens.push({ kind: 'punct', text: ',' });
      const parent = all[open[open.length - 1]];
      if (parent) parent.count = (parent.count ?? 1) + 1;
      all.push({ indent: open.length, tokens: [] });
    } else line().tokens.push({ kind: t.kind === 'punct' ? 'punct' : t.kind, text: t.text });
  }
  return all;
}

/** The text with line breaks and two spaces for each level. @param {string} text */
export const pretty = (text) => lines(text).map((l) => '  '.repeat(l.indent) + l.tokens.map((t) => t.text).join('')).join('\n');
