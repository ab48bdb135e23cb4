// Numbers, durations, bytes and times as people read them. Every time on every page goes through
// `time`, so one switch changes all of them.
import { zone } from './settings.js';

const whole = new Intl.NumberFormat('en-US');
/** @param {number | undefined} n */
export const num = (n) => n === undefined || n === null ? '–' : whole.format(n);

/** 1234567 → 1.2M. @param {number} n */
export function short(n) {
  if (n < 10000) return whole.format(Math.round(n * 10) / 10);
  // A number that rounds up to the next unit has that unit.
  const power = Math.min(4, Math.floor(Math.log10(n * 1.0005) / 3));
  const part = n / 1000 ** power;
  return `${part.toFixed(part < 99.95 ? 1 : 0)}${' kMGT'[power]}`;
}

/** Milliseconds. @param {number | undefined} ms */
export function duration(ms) {
  if (ms === undefined || ms === null) return '–';
  if (ms < 1) return ms === 0 ? '0 ms' : `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms * 10) / 10} ms`.replace(/(\d{2,})\.\d /, '$1 ');
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1).replace(/\.0+$/, '')} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  if (s < 86400) return s % 3600 < 60 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  const h = Math.floor(s % 86400 / 3600);
  return `${Math.floor(s / 86400)} d${h ? ` ${h} h` : ''}`;
}

/** @param {number | undefined} n */
export function bytes(n) {
  if (n === undefined || n === null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < 4) { n /= 1024; i++; }
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

/** @param {number} part @param {number} of */
export const share = (part, of) => of === 0 ? '–' : part === 0 ? '0 %' : part / of < 0.001 ? '< 0.1 %' : `${(100 * part / of).toFixed(part / of < 0.1 ? 1 : 0)} %`;

const formats = {};
const format = (options) => {
  const timeZone = zone.value === 'utc' ? 'UTC' : undefined;
  const key = JSON.stringify(options) + timeZone;
  return formats[key] ??= new Intl.DateTimeFormat('en-GB', { ...options, timeZone, hourCycle: 'h23' });
};
const hms = /** @type {const} */ ({ hour: '2-digit', minute: '2-digit', second: '2-digit' });
const minutes = /** @type {const} */ ({ hour: '2-digit', minute: '2-digit' });
const day = /** @type {const} */ ({ year: 'numeric', month: 'short', day: 'numeric' });

/** A point in time in full: `23 Nov 2026, 14:03:09`. @param {string | number | undefined} t */
export const time = (t) => t === undefined ? '–' : format({ ...day, ...hms }).format(new Date(t));
/** Only its time of day. @param {string | number} t */
export const clock = (t) => format(hms).format(new Date(t));
/** The same with milliseconds. @param {string | number} t */
export const clockMs = (t) => format({ ...hms, fractionalSecondDigits: 3 }).format(new Date(t));
/** The day of an object: `23 Nov 2026`. @param {string | number | undefined} t */
export const date = (t) => t === undefined ? '–' : format(day).format(new Date(t));
/** In a list: how far away within an hour, then the time of day, and before today the day with it. @param {string | number | undefined} t @param {number} [now] */
export function brief(t, now = Date.now()) {
  if (t === undefined) return '–';
  const d = new Date(t), on = date(d.getTime());
  if (Math.abs(now - d.getTime()) < 36e5) return ago(t, now);
  const at = format(minutes).format(d);
  if (on === date(now)) return at;
  if (on === date(now - 864e5)) return `yesterday ${at}`;
  const { year, ...short } = day;
  return `${on.slice(-4) === date(now).slice(-4) ? format(short).format(d) : on}, ${at}`;
}
/** `4 min ago`. @param {string | number | undefined} t @param {number} [now] */
export function ago(t, now = Date.now()) {
  if (t === undefined) return 'never';
  const ms = now - new Date(t).getTime();
  const s = Math.abs(Math.round(ms / 1000));
  const text = s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  return ms < -500 ? `in ${text}` : `${text} ago`;
}
/** A short form of an image that is named by its digest. @param {string} image */
export const shortImage = (image) => image.replace(/(@sha256:[0-9a-f]{12})[0-9a-f]+$/, '$1…');
/** A short form of a job's id. Its beginning is the time and its end the host's, so this is the random part before it. @param {string} id */
export const shortId = (id) => /([0-9a-f]{8})-[0-9a-f]{4}$/.exec(id)?.[1] ?? id;
