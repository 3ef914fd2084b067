// The last events of the node: changes with their authors, and answers of proxies.

import {get, query} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {link, resource} from '../core/route.js';
import {badge, panel, source, when} from '../core/widgets.js';

const MOST = 30;

const TYPES = ['change', 'proxy', 'nack', 'problem'];

/** Returns the panel, which {@link startEvents} fills. */
export function eventList() {
  return panel('Last events', {'aria-label': 'Last events'}, h('p', {class: 'quiet'}, 'Reading…'));
}

/** Fills the panel from the history, and adds the events of the stream. */
export async function startEvents(el, ctx) {
  const list = [];
  const body = h('div');
  const draw = () => refresh(body, list.length
    ? h('ol', {class: 'events'}, list.map(e => h('li', null, when(e.data.time), h('span', null, line(e)))))
    : h('p', {class: 'quiet'}, 'Nothing has changed yet. Changes and rejections appear here at once.'));
  ctx.on(TYPES, event => {
    list.unshift({type: event.type, data: {time: new Date().toISOString(), ...event.data}});
    list.length = Math.min(list.length, MOST);
    draw();
  });
  try {
    const found = await get(query('/v1/history', {size: MOST}), ctx.signal);
    const same = a => b => ['type', 'mesh', 'name', 'revision'].every(k => a[k] === b.data[k]);
    const changes = found.items.filter(c => !list.some(same(c))); // the stream may have begun before
    list.push(...changes.map(data => ({type: 'change', data})));
  } catch (err) {
    if (err.name === 'AbortError') return;
  }
  list.sort((a, b) => String(b.data.time || '').localeCompare(String(a.data.time || '')));
  list.length = Math.min(list.length, MOST);
  draw();
  replace(el, h('h2', null, 'Last events'), body,
    h('p', null, h('a', {href: link('history')}, 'All changes')));
}

const ACTIONS = {created: 'ok', updated: 'info', changed: 'info', deleted: 'warn'};

function line({type, data}) {
  const subject = r => h('a', {href: resource(r)}, name([r.type || r.kind, r.mesh, r.name].filter(Boolean).join('/')));
  const proxy = {type: data.kind || 'Dataplane', mesh: data.mesh, name: data.name};
  switch (type) {
    case 'change':
      return [badge(ACTIONS[data.action] || 'info', data.action), ' ', subject(data),
        h('span', {class: 'quiet'}, data.author ? [' by ', name(data.author, 60)] : null,
          data.source ? [' in ', name(data.source, 60)] : null)];
    case 'proxy':
      return [badge(data.state === 'connected' ? 'ok' : 'off', data.state), ' ', subject(proxy)];
    case 'nack':
      return [badge('bad', 'rejected'), ' ', subject(proxy),
        h('span', {class: 'quiet'}, data.resource ? [' ', name(data.resource)] : null, ': ', name(data.error, 300)),
        data.policies?.length ? [' by ', source(data.policies[0])] : null];
    default:
      return [badge(data.state === 'new' ? data.problem?.severity === 'error' ? 'bad' : 'warn' : 'ok',
        data.state === 'new' ? 'problem' : 'ended'), ' ', name(data.problem?.resource || data.problem?.check, 60),
      h('span', {class: 'quiet'}, ': ', name(data.problem?.reason, 300))];
  }
}
