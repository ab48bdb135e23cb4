// The readme of a template: headings, lists in lists, tasks, tables, quotations, rules, code, emphasis and links
// to http(s) pages. Everything ends as text nodes and known elements; HTML in a readme is shown as the text that it
// is, and a picture is a link, since the page loads nothing from other hosts.
import { html } from '../lib/html.js';

const ITEM = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/;
const RULE = /^\s*([-*_])(\s*\1){2,}\s*$/;
/** The line below the head of a table. */
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const BLOCK = /^(#{1,6}\s|\x60{3}|>)/;
/** How deep quotations and lists may be inside each other: more is text of the deepest one. */
const DEPTH = 8;

/** @param {string} text @returns {any[]} */
function inline(text) {
  const all = [];
  const mark = /\x60([^\x60]+)\x60|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|!?\[([^\]]*)\]\((https?:\/\/[^\s)]+)\)|<?(https?:\/\/[^\s<>]*[^\s<>.,;:!?'")\]])>?/g;
  let at = 0;
  for (const m of text.matchAll(mark)) {
    const [whole, code, strong, em, label, to, bare] = m;
    const url = to ?? bare;
    all.push(text.slice(at, m.index));
    all.push(code ? html`<code>${code}</code>` : strong ? html`<strong>${inline(strong)}</strong>` : em ? html`<em>${inline(em)}</em>` : html`<a href=${url} rel="noopener noreferrer" target="_blank">${label || url}</a>`);
    at = m.index + whole.length;
  }
  all.push(text.slice(at));
  return all;
}

/** The cells of a row. @param {string} line */
const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, '').split(/(?<!\\)\|/).map((c) => c.trim().replaceAll('\\|', '|'));
/** Whether a table begins at a line. @param {string[]} lines @param {number} i */
const isTable = (lines, i) => lines[i].includes('|') && DIVIDER.test(lines[i + 1] ?? '') && lines[i + 1].includes('|');

/** A list from a line on, and the line after it. @param {string[]} lines @param {number} i @param {number} depth @returns {[any, number]} */
function listAt(lines, i, depth) {
  const [, pad, mark] = /** @type {RegExpExecArray} */ (ITEM.exec(lines[i]));
  const items = [], tasks = [], numbered = /\d/.test(mark);
  for (; i < lines.length; i++) {
    const m = ITEM.exec(lines[i]);
    if (m && m[1].length > pad.length + 1 && depth < DEPTH) {
      const [inner, end] = listAt(lines, i, depth + 1);
      items[items.length - 1].push(inner);
      i = end - 1;
    } else if (m && m[1].length >= pad.length && /\d/.test(m[2]) === numbered && !RULE.test(lines[i])) {
      const task = /^\[([ xX])\]\s+(.*)$/.exec(m[3]);
      tasks.push(!!task);
      items.push(task ? [html`<span role="img" aria-label=${task[1] === ' ' ? 'open' : 'done'}>${task[1] === ' ' ? '☐' : '☑'}</span> `, inline(task[2])] : [inline(m[3])]);
    } else if (!m && /^\s+\S/.test(lines[i])) items[items.length - 1].push(' ', inline(lines[i].trim()));
    else break;
  }
  const all = items.map((item, n) => html`<li key=${n} class=${tasks[n] ? 'task' : undefined}>${item}</li>`);
  return [numbered ? html`<ol start=${parseInt(mark, 10)}>${all}</ol>` : html`<ul>${all}</ul>`, i];
}

/** @param {string[]} lines @param {number} depth @returns {any[]} */
function blocks(lines, depth) {
  const out = [];
  for (let i = 0; i < lines.length; i++) {
    const l = lines[i];
    const heading = /^(#{1,6})\s+(.*)/.exec(l);
    if (/^\x60{3}/.test(l)) {
      const code = [];
      while (++i < lines.length && !/^\x60{3}/.test(lines[i])) code.push(lines[i]);
      out.push(html`<pre tabindex="0"><code>${code.join('\n')}</code></pre>`);
    } else if (heading) out.push(heading[1].length < 2 ? html`<h3>${inline(heading[2])}</h3>` : html`<h4>${inline(heading[2])}</h4>`);
    else if (RULE.test(l)) out.push(html`<hr/>`);
    else if (l.startsWith('>') && depth < DEPTH) {
      const quoted = [];
      for (; i < lines.length && lines[i].startsWith('>'); i++) quoted.push(lines[i].replace(/^>\s?/, ''));
      i--;
      out.push(html`<blockquote>${blocks(quoted, depth + 1)}</blockquote>`);
    } else if (isTable(lines, i)) {
      const head = cells(l), right = cells(lines[i + 1]).map((c) => c.endsWith(':') && !c.startsWith(':') ? 'n' : '');
      const rows = [];
      for (i += 2; i < lines.length && lines[i].includes('|'); i++) rows.push(cells(lines[i]));
      i--;
      out.push(html`<div class="scroll" tabindex="0" role="region" aria-label="Table"><table><thead><tr>${head.map((c, n) => html`<th key=${n} scope="col" class=${right[n]}>${inline(c)}</th>`)}</tr></thead><tbody>${rows.map((r, k) => html`<tr key=${k}>${head.map((_, n) => html`<td key=${n} class=${right[n]}>${inline(r[n] ?? '')}</td>`)}</tr>`)}</tbody></table></div>`);
    } else if (ITEM.test(l)) {
      const [list, end] = listAt(lines, i, depth);
      out.push(list);
      i = end - 1;
    } else if (l.trim()) {
      const part = [l];
      while (i + 1 < lines.length && lines[i + 1].trim() && !BLOCK.test(lines[i + 1]) && !ITEM.test(lines[i + 1]) && !RULE.test(lines[i + 1]) && !isTable(lines, i + 1)) part.push(lines[++i]);
      out.push(html`<p>${inline(part.join(' '))}</p>`);
    }
  }
  return out;
}

/** @param {{ text: string }} props */
export const Markdown = ({ text }) => html`<div class="readme">${blocks(text.split(/\r?\n/), 0)}</div>`;
