// The example of an input that the playground makes from the schema of an endpoint.
import assert from 'node:assert/strict';
import test from 'node:test';
import { exampleOf } from '../../../host/console/assets/lib/schema.js';

const example = (schema) => JSON.parse(exampleOf(JSON.stringify(schema)));

test('an example has the required members, with values that the schema allows', () => {
  const schema = {
    type: 'object',
    required: ['prompt', 'size', 'mode', 'tags', 'at', 'deep', 'maybe', 'ratio'],
    properties: {
      prompt: { type: 'string', minLength: 6 }, size: { type: 'integer', minimum: 3 }, mode: { enum: ['fast', 'slow'] },
      tags: { type: 'array', minItems: 2, items: { type: 'string', maxLength: 2 } }, at: { type: 'string', format: 'date-time' },
      deep: { $ref: '#/$defs/a~1b' }, maybe: { anyOf: [{ type: 'null' }, { type: 'boolean' }] },
      ratio: { type: ['null', 'number'], exclusiveMinimum: 0 }, seed: { type: 'integer' },
    },
    $defs: { 'a/b': { allOf: [{ properties: { x: { const: 1 } } }, { required: ['y'], properties: { y: { default: [2] } } }] } },
  };
  assert.deepEqual(example(schema), {
    prompt: 'text..', size: 3, mode: 'fast', tags: ['te', 'te'], at: '2026-01-31T12:00:00Z', deep: { x: 1, y: [2] }, maybe: false, ratio: 1,
  });
});

test('an object without required members shows its members', () => {
  assert.deepEqual(example({ properties: { a: { type: 'number', maximum: -2 }, b: {} } }), { a: -2, b: null });
});

test('an example of any schema ends, and is small', () => {
  const wide = { type: 'array', minItems: 1e9, items: { $ref: '#/items' } };
  const circle = { required: ['a', 'b'], properties: { a: { $ref: '#' }, b: { $ref: '#' } } };
  for (const schema of [true, false, null, 1, [], 'x', {}, wide, circle, { $ref: '#' }, { $ref: '#/nowhere/__proto__' }, { $ref: 3 }, { required: [1, null, '__proto__'] }, { enum: [] }, { type: 'string', minLength: 1e9 }]) {
    assert.ok(exampleOf(JSON.stringify(schema)).length < 50_000, JSON.stringify(schema));
  }
  for (const text of ['', '{"$ref":"#/%"}', '{"anyOf":3}', '{"type":"array","prefixItems":1}']) assert.equal(exampleOf(text), undefined, text);
});
