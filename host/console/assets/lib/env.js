// Variables of the environment as a text: one NAME=value a line.

/** @param {Record<string, string> | undefined} env */
export const envText = (env) => Object.entries(env ?? {}).map(([k, v]) => `${k}=${v}`).join('\n');

/** The variables of a text. Lines without a value are left out. @param {string} text @returns {Record<string, string>} */
export const envOf = (text) => Object.fromEntries(text.split('\n').filter((l) => l.includes('=')).map((l) => [l.slice(0, l.indexOf('=')).trim(), l.slice(l.indexOf('=') + 1)]));
