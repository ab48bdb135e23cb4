// Variables and arguments as texts: a text has exactly the values that it was made of.
import test from 'node:test';
import assert from 'node:assert/strict';
import { argsFault, argsOf, argsText, envFault, envOf, envText } from '../../../host/console/assets/lib/env.js';

test('values of several lines and with quotation marks come back as they were', () => {
  const env = { PEM: '-----BEGIN-----\nMIIB=\n-----END-----', CONFIG: 'x=1\r\ny=2', Q: '"hot"', HALF: '"', EMPTY: '', EQ: 'a=b', SPACES: '  a ' };
  assert.equal(envFault(envText(env)), undefined);
  assert.deepEqual(envOf(envText(env)), env);
  const args = ['-c', 'a\nb', '', ' ', '"x"', '--name=value'];
  assert.equal(argsFault(argsText(args)), undefined);
  assert.deepEqual(argsOf(argsText(args)), args);
  assert.deepEqual([envOf(''), argsOf('\n\n')], [{}, []]);
});

test('a line that has no value is named', () => {
  assert.match(envFault('A=1\nB') ?? '', /^B has no =/);
  assert.match(envFault('A="x') ?? '', /JSON string/);
  assert.match(argsFault('"x') ?? '', /JSON string/);
});
