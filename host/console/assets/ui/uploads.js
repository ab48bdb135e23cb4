// Uploads to network volumes, one file at a time. They continue while other pages are shown; closing the tab ends
// them, and the browser asks first. The host shows a file once it is complete, so a broken upload leaves nothing.
import { html, signal, effect } from '../lib/html.js';
import { page, query, seg, upload } from '../lib/api.js';
import { who, ended } from '../lib/session.js';
import { bytes, num, share } from '../lib/format.js';
import { visible } from '../lib/text.js';
import { Button } from './parts.js';
import { Icon } from './icons.js';
import { ask } from './dialog.js';
import { say } from './toast.js';

/** Most files of one choice or drop: the question for files to replace lists the directory for each of them. */
const FILES_MAX = 500;
/** Most failures that are kept and shown. */
const PROBLEMS_MAX = 20;

/** @typedef {{ file: File, path: string[] }} Chosen a file, and its path below the volume's root */

/** The address of a file in the API. @param {string} volume @param {string[]} path */
export const fileAt = (volume, path) => `v1/networkvolumes/${seg(volume)}/files/${path.map(seg).join('/')}`;
/** One page of a directory. @param {string} volume @param {string[]} names @param {Record<string, any>} more @param {AbortSignal} [signal] */
export const directory = (volume, names, more, signal) => page(`v1/networkvolumes/${seg(volume)}/files${query({ path: names.join('/'), ...more })}`, signal);

/** The files of a drop, also those in dropped directories. @param {DataTransfer} data @param {string[]} below @returns {Promise<Chosen[]>} */
export async function dropped(data, below) {
  /** @type {Chosen[]} */
  const all = [];
  /** @param {any} entry @param {string[]} path */
  const walk = async (entry, path) => {
    if (all.length > FILES_MAX) return;
    if (entry.isFile) { all.push({ path: [...path, entry.name], file: await new Promise((done, fail) => entry.file(done, fail)) }); return; }
    const reader = entry.createReader();
    // The reader returns some entries at a time, and none at the end.
    for (let some; (some = await new Promise((done, fail) => reader.readEntries(done, fail))).length;) for (const one of some) await walk(one, [...path, entry.name]);
  };
  // The list of items is empty after the event, so all entries are taken first.
  for (const [entry, file] of [...data.items].map((i) => /** @type {const} */ ([i.webkitGetAsEntry(), i.getAsFile()]))) {
    if (entry) await walk(entry, below); else if (file) all.push({ path: [...below, file.name], file });
  }
  return all;
}

// A text directly before a name in the order of names, as a cursor: the list after it begins with the name.
const before = (name) => {
  const all = [...name], last = (all.pop()?.codePointAt(0) ?? 1) - 1;
  return `${all.join('')}${String.fromCodePoint(last >= 0xd800 && last <= 0xdfff ? 0xd7ff : last)}\u{10ffff}`;
};
/** The files that would replace a file of the volume. @param {string} volume @param {Chosen[]} files */
async function existing(volume, files) {
  const found = [];
  for (const [key, some] of Map.groupBy(files, (f) => f.path.slice(0, -1).join('/'))) {
    const names = key ? key.split('/') : [];
    const list = (more) => directory(volume, names, more).catch((e) => { if (e.status === 404) return { items: [], next: undefined }; throw e; });
    const first = await list({ limit: 1000 });
    for (const f of some) {
      const name = f.path[f.path.length - 1];
      const items = first.next ? (await list({ limit: 1, cursor: before(name) })).items : first.items;
      if (items.some((x) => x.name === name && x.type === 'file')) found.push(f);
    }
  }
  return found;
}

/** @typedef {{ volume: string, now: Chosen, sent: number, done: number, total: number, stop: AbortController }} Running */
const running = signal(/** @type {Running | null} */ (null));
const problems = signal(/** @type {{ volume: string, path: string, text: string }[]} */ ([]));
/** @type {{ volume: string, chosen: Chosen, onDone: () => void }[]} */
const waiting = [];
const guard = (e) => e.preventDefault();

// A key of another owner, or with other scopes, may not see these names.
let whose = who();
effect(() => {
  const id = who();
  if (id !== whose) { running.peek()?.stop.abort(); problems.value = []; }
  whose = id;
});

/** Waits for the next login, or as long as the host asks for. @param {any} refusal @param {AbortSignal} stop @returns {Promise<void>} */
const recovery = (refusal, stop) => new Promise((done) => {
  stop.addEventListener('abort', () => done());
  if (refusal.status !== 401) { setTimeout(done, refusal.retryAfter * 1000); return; }
  const end = effect(() => { if (!ended.value) { done(); setTimeout(() => end()); } });
});

async function work() {
  const stop = new AbortController();
  let done = 0, good = 0, bad = 0, last = '';
  addEventListener('beforeunload', guard);
  for (let next; (next = waiting.shift()); done++) {
    const { volume, chosen, onDone } = next;
    const show = (sent) => { running.value = { volume, now: chosen, sent, done, total: done + 1 + waiting.length, stop }; };
    show(0);
    try {
      await upload(fileAt(volume, chosen.path), chosen.file, stop.signal, show);
      good++;
      last = chosen.path.join('/');
      onDone();
    } catch (e) {
      if (stop.signal.aborted) { waiting.length = 0; break; }
      // The file itself is not at fault, and neither are those after it.
      if (e.status === 401 && ended.peek() || (e.status === 429 || e.status === 503) && e.retryAfter) {
        waiting.unshift(next);
        done--;
        await recovery(e, stop.signal);
        continue;
      }
      bad++;
      problems.value = [...problems.value.slice(1 - PROBLEMS_MAX), { volume, path: chosen.path.join('/'), text: e.message }];
    }
  }
  removeEventListener('beforeunload', guard);
  running.value = null;
  if (stop.signal.aborted) say(`The upload is cancelled${good ? `; ${num(good)} ${good === 1 ? 'file was' : 'files were'} complete before` : ''}.`);
  else if (bad > 1) say(`${num(bad)} of ${num(done)} files are not uploaded.`, 'bad');
  else if (good) say(good === 1 ? `${last} is uploaded.` : `${num(good)} files are uploaded.`);
}

/** Uploads files, after a question if some exist. @param {string} volume @param {Chosen[]} files @param {() => void} onDone called after each file */
export async function send(volume, files, onDone) {
  if (!files.length) return;
  if (files.length > FILES_MAX) { say(`At most ${FILES_MAX} files can be uploaded at a time here. “gristmill volumes cp -r” copies a directory of any size.`, 'bad'); return; }
  const old = await existing(volume, files);
  const names = old.slice(0, 8).map((f) => html`<li key=${f.path.join('/')}><code class="path">${visible(f.path.join('/'))}</code></li>`);
  if (old.length && !await ask(old.length === 1 ? 'Replace a file?' : `Replace ${num(old.length)} files?`, html`<ul class="names">${names}${old.length > 8 && html`<li>and ${num(old.length - 8)} more</li>`}</ul><p>Readers see the present content until the upload is complete.</p>`, old.length === 1 ? 'Replace it' : 'Replace them')) return;
  problems.value = [];
  waiting.push(...files.map((chosen) => ({ volume, chosen, onDone })));
  if (!running.peek()) work();
}

/** How far the uploads to a volume are, and what went wrong. @param {{ volume: string }} props */
export function Uploads({ volume }) {
  const r = running.value, bad = problems.value.filter((p) => p.volume === volume);
  const here = r?.volume === volume ? r : null;
  return html`${here && html`<section class="panel" aria-label="Upload"><div class="body progress"><progress aria-label="Upload" max=${here.now.file.size || 1} value=${here.sent}></progress>
      <p role="status">Uploading ${here.total > 1 ? `${num(here.done + 1)} of ${num(here.total)}: ` : ''}<code class="path">${visible(here.now.path.join('/'))}</code></p>
      <div class="actions"><${Button} small onClick=${() => here.stop.abort()}>Cancel</${Button}><span class="faint">${share(here.sent, here.now.file.size)} of ${bytes(here.now.file.size)}</span></div></div></section>`}
    ${bad.length > 0 && html`<div class="trouble" role="alert"><${Icon} name="FAILED"/><ul class="names plain">${bad.map((p, i) => html`<li key=${i}><code class="path">${visible(p.path)}</code>: ${visible(p.text)}</li>`)}</ul><${Button} small onClick=${() => { problems.value = []; }}>Close</${Button}></div>`}`;
}
