// Variables of the environment and arguments as texts, one a line. A value that has line breaks, or that begins with
// a quotation mark, is written as a JSON string, so that a text has exactly the values that it was made of.
import { visible } from './text.js';

/** @param {string} value */
const written = (value) => /[\r\n]/.test(value) || value.startsWith('"') ? JSON.stringify(value) : value;

/** The value of a text, or nothing if it only begins like a JSON string. @param {string} text @returns {string | undefined} */
const read = (text) => {
  if (!text.startsWith('"')) return text;
  try { const value = JSON.parse(text); return typeof value === 'string' ? value : undefined; } catch { return undefined; }
};

/** @param {Record<string, string> | undefined} env */
export const envText = (env) => Object.entries(env ?? {}).map(([k, v]) => `${k}=${written(v)}`).join('\n');

const lines = (text) => text.split('\n').filter((l) => l.trim());

/** Why a text has no variables. @param {string} text @returns {string | undefined} */
export const envFault = (text) => {
  for (const line of lines(text)) {
    if (!line.includes('=')) return `${visible(line.slice(0, 40))} has no =: a line is NAME=value.`;
    if (read(line.slice(line.indexOf('=') + 1)) === undefined) return `${visible(line.slice(0, 40))}: a value that begins with a quotation mark is a JSON string, such as "a\\nb".`;
  }
};

/** The variables of a text without a fault. @param {string} text @returns {Record<string, string>} */
export const envOf = (text) => Object.fromEntries(lines(text).map((l) => [l.slice(0, l.indexOf('=')).trim(), read(l.slice(l.indexOf('=') + 1)) ?? '']));

/** @param {string[] | undefined} args */
export const argsText = (args) => (args ?? []).map((a) => a.trim() ? written(a) : JSON.stringify(a)).join('\n');

/** Why a text has no arguments. @param {string} text @returns {string | undefined} */
export const argsFault = (text) => {
  const bad = lines(text).find((l) => read(l) === undefined);
  return bad && `${visible(bad.slice(0, 40))}: an argument that begins with a quotation mark is a JSON string, such as "".`;
};

/** The arguments of a text without a fault. @param {string} text @returns {string[]} */
export const argsOf = (text) => lines(text).map((l) => read(l) ?? '');
