// A text field for JSON that says where the text stops being JSON, and formats without touching a number.
import { html, useRef } from '../lib/html.js';
import { problem, pretty } from '../lib/json.js';
import { Button } from './parts.js';

/** @param {{ label: string, value: string, onInput: (v: string) => void, rows?: number, onSubmit?: () => any }} props */
export function Editor({ label, value, onInput, rows = 12, onSubmit }) {
  const wrong = problem(value);
  // A key that is held down, or pressed again, submits once.
  const busy = useRef(false);
  const submit = async () => {
    if (wrong || busy.current) return;
    busy.current = true;
    try { await onSubmit?.(); } finally { busy.current = false; }
  };
  return html`<div class="editor"><div class="editor-bar"><span class="label" id="editor-label">${label}</span><span class=${wrong ? 'bad' : 'faint'} id="editor-state" aria-live="polite">${wrong === 'empty' ? 'empty' : wrong || 'JSON'}</span><${Button} small kind="quiet" disabled=${!!wrong} onClick=${() => onInput(pretty(value))}>Format</${Button}></div>
    <textarea aria-labelledby="editor-label" aria-describedby="editor-state" aria-invalid=${!!wrong} rows=${rows} spellcheck=${false} autocomplete="off" value=${value} onInput=${(e) => onInput(e.target.value)}
      onKeyDown=${(e) => { if ((e.metaKey || e.ctrlKey) && e.key === 'Enter') { e.preventDefault(); submit(); } }}></textarea></div>`;
}
