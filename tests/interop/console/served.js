// What the host serves of a file of the console: a script of its own loses the comments that are whole lines.
// host/console/src/comments.rs does the same.

/** @param {string} path below the assets @param {string} text */
export const served = (path, text) => path.endsWith('.js') && !path.startsWith('vendor/')
  ? text.replace(/^[ \t]*(\/\/.*|\/\*\*(?:(?!\*\/)[\s\S])*\*\/[ \t]*)$/gm, (comment) => comment.replace(/[^\n]/g, '')) : text;
