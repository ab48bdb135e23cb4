// Text of handlers made safe to look at: control characters and marks that change the direction of
// writing become visible signs, so that a line cannot hide what it is. The text itself is only ever put
// into text nodes.

// eslint-disable-next-line no-control-regex
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
/** @param {string} c */
const sign = (c) => {
  const n = c.charCodeAt(0);
  if (n < 0x20) return String.fromCharCode(0x2400 + n);
  if (n === 0x7f) return '\u2421';
  return `⟨U+${n.toString(16).toUpperCase().padStart(4, '0')}⟩`;
};
/** @param {string} text */
export const visible = (text) => text.replace(hidden, sign);
/** A text as one argument of a shell. @param {string} text */
export const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
