// The readme of a template: headings, lists, code, emphasis and links to http(s) pages. Everything ends
// as text nodes and known elements; HTML in a readme is shown as the text that it is.
import { html } from '../lib/html.js';

/** @param {string} text @returns {any[]} */
function inline(text) {
  const all = [];
  const mark = /\x60([^\x60]+)\x60|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;
  let at = 0;
  for (const m of text.matchAll(mark)) {
    all.push(text.slice(at, m.index));
    all.push(m[1] ? html`<code>${m[1]}</code>` : m[2] ? html`<strong>${m[2]}</strong>` : m[3] ? html`<em>${m[3]}</em>` : html`<a href=${m[5]} rel="noopener noreferrer" target="_blank">${m[4]}</a>`);
    at = m.index + m[0].length;
  }
  all.push(text.slice(at));
  return all;
}

/** @param {{ text: string }} props */
export function Markdown({ text }) {
  const out = [];
  const lines = text.split('\n');
  for (let i = 0; i < lines.length; i++) {
    const l = lines[i];
    const heading = /^(#{1,6})\s+(.*)/.exec(l);
    if (/^\x60{3}/.test(l)) {
      const code = [];
      while (++i < lines.length && !/^\x60{3}/.test(lines[i])) code.push(lines[i]);
      out.push(html`<pre tabindex="0"><code>${code.join('\n')}</code></pre>`);
    } else if (heading) out.push(heading[1].length < 2 ? html`<h3>${inline(heading[2])}</h3>` : html`<h4>${inline(heading[2])}</h4>`);
    else if (/^\s*([-*]|\d+\.)\s/.test(l)) {
      const items = [];
      const numbers = /^\s*\d/.test(l);
      for (; i < lines.length && /^\s*([-*]|\d+\.)\s/.test(lines[i]); i++) items.push(html`<li>${inline(lines[i].replace(/^\s*([-*]|\d+\.)\s+/, ''))}</li>`);
      i--;
      out.push(numbers ? html`<ol>${items}</ol>` : html`<ul>${items}</ul>`);
    } else if (l.trim()) {
      const part = [l];
      while (i + 1 < lines.length && lines[i + 1].trim() && !/^(#|\x60{3}|\s*[-*]\s)/.test(lines[i + 1])) part.push(lines[++i]);
      out.push(html`<p>${inline(part.join(' '))}</p>`);
    }
  }
  return html`<div class="readme">${out}</div>`;
}
