// Shows how far a change is in force, until it is or until it is rejected.

import {send} from '../core/api.js';
import {h, name, refresh} from '../core/dom.js';
import {key, plural} from '../core/format.js';
import {badge, command, failure, resourceLink, say, when} from '../core/widgets.js';

const ENDS = new Set(['applied', 'gone', 'rejected', 'no-effect', 'shadow', 'inert', 'replaced', 'unselected',
  'stale']);
const LONGEST = 3 * 60 * 1000; // ms

const COLORS = {applied: 'ok', gone: 'ok', shadow: 'info', pending: 'warn', rejected: 'bad', stale: 'bad'};

/** Returns a state of a change as a word with a color. */
export const applied = state => badge(COLORS[state] || 'warn', state);

/**
 * Waits for changes, `{type, mesh, name, gone, after}`, and shows their state in an element. With `after`, it first
 * waits until the revision of the resource differs from this one, as after a change of a file. Returns
 * the last states.
 */
export async function waitFor(el, changes, signal) {
  const states = await Promise.all(changes.slice(0, 20).map(c => {
    const row = h('div', {class: 'wait'});
    el.append(row);
    return one(row, c, signal);
  }));
  const bad = states.filter(s => s && COLORS[s.state] === 'bad').length;
  say(bad ? `${plural(bad, 'change')} rejected` : 'In force');
  return states;
}

async function one(row, change, signal) {
  const {type, mesh, name: resource} = change;
  const question = {type, mesh: mesh || undefined, name: resource, for: change.gone ? 'gone' : 'applied'};
  const start = Date.now();
  let state = null;
  while (!signal.aborted) {
    try {
      state = await send('POST', '/v1/wait', {...question, timeout: state ? '2s' : '0s'}, {signal});
    } catch (err) {
      if (err.name === 'AbortError') return state;
      if (err.status === 404 && change.gone) {
        row.replaceChildren(h('p', null, name(key(change)), ' ', applied('gone')));
        return {state: 'gone'};
      }
      if (err.status === 404 && change.after === 0 && Date.now() - start < 15000) {
        row.replaceChildren(h('p', {class: 'quiet'}, `The agent reads ${key(change)}…`));
        await new Promise(done => setTimeout(done, 200));
        continue;
      }
      if ([0, 502, 429].includes(err.status) && Date.now() - start < LONGEST) {
        draw(row, change, state, 'The agent does not answer; asking again.');
        await new Promise(done => setTimeout(done, 1000));
        continue;
      }
      refresh(row, failure(err));
      return null;
    }
    const unread = change.after !== undefined && state.revision === change.after;
    if (unread && Date.now() - start > 15000) {
      draw(row, change, state, 'The agent has not read the file yet. Health shows faults of files.');
      return state;
    }
    draw(row, change, state, unread ? 'The agent reads the file…' : '');
    if (!unread && ENDS.has(state.state)) return state;
    if (Date.now() - start > LONGEST) {
      draw(row, change, state, 'The page no longer waits.');
      return state;
    }
    if (unread) await new Promise(done => setTimeout(done, 200));
  }
  return state;
}

function draw(row, change, s, note) {
  if (!s) return;
  refresh(row, h('p', null, resourceLink(change), ' ', applied(s.state), ' ',
    s.proxies ? `${s.acknowledged} of ${plural(s.proxies, 'proxy', 'proxies')} acknowledged revision ${s.revision}`
      : s.state === 'applied' || s.state === 'gone' ? 'No connected proxy is affected' : '',
    s.reason ? [s.proxies ? ': ' : ' ', name(s.reason, 400)] : null, note ? h('span', {class: 'quiet'}, ' ', note)
      : null),
  s.proxies && s.state === 'pending' ? h('progress', {max: String(s.proxies), value: s.acknowledged,
    'aria-label': `Proxies that acknowledged ${key(change)}`}) : null,
  s.warnings?.length ? h('ul', null, s.warnings.slice(0, 10).map(w => h('li', {class: 'warn'}, name(w, 400)))) : null,
  s.late?.length ? h('ul', null, s.late.slice(0, 10).map(l => h('li', null, name(`${l.mesh}/${l.name}`), ': ',
    name(l.reason, 300))),
    s.lateTotal > 10 ? h('li', {class: 'quiet'}, `and ${s.lateTotal - 10} more`) : null) : null,
  s.rejected?.length ? h('ul', null, s.rejected.slice(0, 10).map(r => h('li', {class: 'bad'},
    name(`${r.mesh}/${r.name}: ${r.resource}: ${r.reason}`,
    800))), s.rejectedTotal > 10 ? h('li', {class: 'quiet'}, `and ${s.rejectedTotal - 10} more`) : null) : null,
  s.old?.length ? h('p', {class: 'quiet'},
    'Connections opened before may use the previous filters; the last ends ', when(s.oldUntil), '. ',
    command(`nearside wait ${s.type.toLowerCase()}/${s.name}${s.mesh ? ` -m ${s.mesh}` : ''} --effective`)) : null);
}
