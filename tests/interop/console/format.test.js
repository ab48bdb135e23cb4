// Numbers and times as people read them.
import test from 'node:test';
import assert from 'node:assert/strict';

Object.assign(globalThis, { document: { documentElement: { dataset: {} } } });
const { ago, brief, date, duration, short, shortId } = await import('../../../host/console/assets/lib/format.js');
const { zone } = await import('../../../host/console/assets/lib/settings.js');
zone.value = 'utc';

test('a short number has one of five units', () => {
  for (const [n, text] of [[0, '0'], [9_999, '9,999'], [12_345, '12.3k'], [123_456, '123k'], [999_999, '1.0M'], [1_234_567, '1.2M'], [66_340_000_000, '66.3G'], [123_400_000_000, '123G'], [5e12, '5.0T'], [5e15, '5000T']]) assert.equal(short(n), text);
});

test('a duration has no part that is zero', () => {
  for (const [ms, text] of [[0, '0 ms'], [0.4, '0.40 ms'], [90_000, '1 min 30 s'], [7_200_000, '2 h'], [30 * 86_400_000, '30 d'], [93_600_000, '1 d 2 h']]) assert.equal(duration(ms), text);
});

test('a short time says which day it is of', () => {
  const now = Date.parse('2026-11-28T00:04:00Z');
  for (const [t, text] of [['2026-11-28T00:03:48Z', '12 s ago'], ['2026-11-27T23:55:21Z', '8 min ago'], ['2026-11-27T22:55:21Z', 'yesterday 22:55'], ['2026-11-26T23:55:21Z', '26 Nov, 23:55'], ['2025-11-27T23:55:00Z', '27 Nov 2025, 23:55'], ['2026-11-28T00:30:00Z', 'in 26 min'], ['2027-02-25T23:48:00Z', '25 Feb 2027, 23:48']]) assert.equal(brief(t, now), text);
  assert.equal(brief('2026-11-28T09:10:00Z', Date.parse('2026-11-28T20:00:00Z')), '09:10');
  assert.equal(date('2026-11-27T23:48:22Z'), '27 Nov 2026');
  assert.equal(ago('2026-11-27T00:04:00Z', now), '1 d ago');
});

test('the short ids of jobs of one millisecond differ', () => {
  const ids = ['01a21f34-fd39-7d1c-b3c4-ef656ffd9f4d-df1e', 'sync-01a21f34-fd39-7d1c-b3c4-ef656ffe0a11-df1e', 'call1-01a21f34-fd39-7d1d-8000-00006ffe0a12-df1e'];
  assert.deepEqual(ids.map(shortId), ['6ffd9f4d', '6ffe0a11', '6ffe0a12']);
  assert.equal(shortId('other'), 'other');
});
