// JSON is shown exactly: numbers above 2^53, duplicate keys and the order of keys stay as they are.
import test from 'node:test';
import assert from 'node:assert/strict';
import { lines, pretty, members, member, elements, problem } from '../../../host/console/assets/lib/json.js';
import { visible } from '../../../host/console/assets/lib/text.js';

test('formatting changes only the white space between tokens', () => {
  const text = '{"b":9007199254740993,"a":1.0,"a":-0,"c":[1e400,[],{}],"s":"\\u0041 \\"{,}","t":true}';
  const made = pretty(text);
  assert.match(made, /"b": 9007199254740993,\n {2}"a": 1\.0,\n {2}"a": -0,/);
  assert.equal(made.replace(/\n */g, '').replaceAll('": ', '":'), text);
});

test('members and elements are cut out as they were written', () => {
  const text = ' {"id":"x","output" : {"n":12345678901234567890,"n":1.10} , "list":[1, "]", {"a":[2]}]}';
  assert.equal(member(text, 'output'), '{"n":12345678901234567890,"n":1.10}');
  assert.deepEqual(members(text).map(([n]) => n), ['id', 'output', 'list']);
  assert.deepEqual(elements(member(text, 'list') ?? ''), ['1', '"]"', '{"a":[2]}']);
  assert.deepEqual(elements('[]'), []);
});

test('a line that opens names the line that closes', () => {
  const all = lines('{"a":[1,2],"b":{}}');
  assert.equal(all[0].end, all.length - 1);
  assert.equal(all[1].end, 4);
  assert.equal(all[1].count, 2);
});

test('what is not JSON is named with its place', () => {
  for (const good of ['{}', '[]', ' 1 ', '"a"', '{"a":[{"b":null}]}', '[[],{}]']) assert.equal(problem(good), '', good);
  assert.equal(problem(''), 'empty');
  assert.equal(problem('{"a":1,}'), 'not JSON at line 1, column 8');
  assert.equal(problem('{\n "a" 1}'), 'not JSON at line 2, column 6');
  for (const bad of ['{', '[1 2]', '{a:1}', '01', '1 2', '["\n"]', '{"a":1}}', '+1', "{'a':1}"]) assert.notEqual(problem(bad), '', bad);
});

test('control characters and marks of direction become visible', () => {
  assert.equal(visible('a\u001b[31mred\u202Eevil\u0000\u200f'), 'a␛[31mred⟨U+202E⟩evil␀⟨U+200F⟩');
  assert.equal(visible('tab\tand\nline é 🌾'), 'tab\tand\nline é 🌾');
});
