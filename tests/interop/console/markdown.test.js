// Readmes: what Markdown's marks become, as elements with texts, and that nothing else becomes an element.
import test from 'node:test';
import assert from 'node:assert/strict';
import { Markdown } from '../../../host/console/assets/ui/markdown.js';

/** The elements of a readme as text: `ul(li(a))`. */
const shown = (node) => node === null || node === undefined || typeof node === 'boolean' ? ''
  : Array.isArray(node) ? node.map(shown).join('')
  : typeof node !== 'object' ? String(node)
  : `${node.type}${node.props.href ? `<${node.props.href}>` : ''}(${shown(node.props.children)})`;
const read = (text) => shown(Markdown({ text }).props.children);

test('a table has its cells, and a bar in a text is none', () => {
  assert.equal(read('| Field | Meaning |\n|---|--:|\n| `text` | a \\| b |\n| n |\n\nafter'),
    'div(table(thead(tr(th(Field)th(Meaning)))tbody(tr(td(code(text))td(a | b))tr(td(n)td()))))p(after)');
  assert.equal(read('either | or\nand so on'), 'p(either | or and so on)');
});

test('an address is a link without the mark after it, and only of http(s)', () => {
  assert.equal(read('See https://mill.example/a?b=c. And <https://x.example>.'), 'p(See a<https://mill.example/a?b=c>(https://mill.example/a?b=c). And a<https://x.example>(https://x.example).)');
  assert.equal(read('![a mill](https://mill.example/a.png) [x](javascript:alert(1))'), 'p(a<https://mill.example/a.png>(a mill) [x](javascript:alert(1)))');
  assert.equal(read('`https://mill.example`'), 'p(code(https://mill.example))');
});

test('lists are in lists, and tasks are open or done', () => {
  assert.equal(read('* a\n  - b\n    more\n  - c\n* d'), 'ul(li(aul(li(b more)li(c)))li(d))');
  assert.equal(read('1. one\n2. two\n- three'), 'ol(li(one)li(two))ul(li(three))');
  assert.equal(read('- [ ] grind\n- [x] sieve'), 'ul(li(span(☐) grind)li(span(☑) sieve))');
});

test('quotations, rules, headings and code', () => {
  assert.equal(read('> slow\n> but **fine**\n\n---\n# T\ntext\n## S\n```\n# no | heading\n```'), 'blockquote(p(slow but strong(fine)))hr()h3(T)p(text)h4(S)pre(code(# no | heading))');
  assert.equal(read('2 * 3 * 4'), 'p(2 * 3 * 4)');
  assert.equal(read('<script>alert(1)</script>'), 'p(<script>alert(1)</script>)');
});

test('a readme of marks alone comes to an end', () => {
  for (const text of ['>'.repeat(50_000), '- '.repeat(20_000), `${'  '.repeat(3_000)}- a`, '|'.repeat(20_000), '*'.repeat(20_000), '`'.repeat(20_001), '['.repeat(20_000), Array.from({ length: 300 }, (_, n) => `${' '.repeat(n * 2)}- a`).join('\n')]) {
    const began = performance.now();
    read(text);
    assert.ok(performance.now() - began < 5_000, text.slice(0, 20));
  }
});
