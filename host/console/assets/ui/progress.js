// How far an action on many jobs is, with its numbers in words and a button that aborts it.
import { html, useEffect, useState } from '../lib/html.js';
import { json, seg } from '../lib/api.js';
import { num } from '../lib/format.js';
import { Button } from './parts.js';
import { Icon } from './icons.js';

export const DONE = { retry: 'queued again', cancel: 'cancelled', delete: 'deleted' };

/** Follows an action to its end. @param {{ id: string, total?: number, onEnd?: () => void }} props `total`: the jobs of the preview, if it counted all */
export function Progress({ id, total, onEnd }) {
  const [action, setAction] = useState(/** @type {any} */ (null));
  const [error, setError] = useState('');
  useEffect(() => {
    const stop = new AbortController();
    (async () => {
      while (!stop.signal.aborted) {
        try {
          const a = await json(`v1/job-actions/${seg(id)}`, { signal: stop.signal });
          setAction(a);
          setError('');
          if (a.state !== 'RUNNING') { onEnd?.(); return; }
        } catch (e) { if (stop.signal.aborted) return; setError(/** @type {Error} */ (e).message); }
        await new Promise((f) => setTimeout(f, 400));
      }
    })();
    return () => stop.abort();
  }, [id]);
  if (!action) return html`<p class="faint">${error || 'The action begins …'}</p>`;
  const seen = action.changed + action.skipped;
  const running = action.state === 'RUNNING';
  return html`<div class="progress"><progress aria-label="Progress" max=${running ? Math.max(total ?? 0, action.matched, 1) : 1} value=${running ? seen : 1}></progress>
    <p aria-live="polite"><strong>${num(action.changed)} ${DONE[action.action]}</strong>${action.skipped > 0 && html`, ${num(action.skipped)} skipped because their status had changed`}${running && total !== undefined ? ` of ${num(total)}` : ''}${running ? ' so far' : ''}.</p>
    ${action.reason && html`<p class="bad">${action.reason}</p>`}${error && html`<p class="bad">${error}</p>`}
    ${running ? html`<${Button} small onClick=${() => json(`v1/job-actions/${seg(id)}`, { method: 'DELETE' })}>Abort</${Button}>` : html`<p class=${action.state === 'COMPLETED' ? 'good' : 'bad'}><${Icon} name=${action.state === 'COMPLETED' ? 'COMPLETED' : 'CANCELLED'}/> ${action.state === 'COMPLETED' ? 'The action is complete.' : action.state === 'ABORTED' ? 'The action was aborted; changed jobs stay changed.' : 'The action failed.'}</p>`}</div>`;
}
