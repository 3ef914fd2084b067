// Where a policy is in force: on one proxy, by field, with the policies that override it.

import {send} from '../core/api.js';
import {h, name} from '../core/dom.js';
import {plural} from '../core/format.js';
import {badge, resourceLink, source, table} from '../core/widgets.js';

/** Returns how much is in force, as a word with a color. */
export const effect = (text, overridden) => ({
  all: badge('ok', 'in force'), part: badge('warn', 'partly in force'),
  none: badge('bad', overridden ? 'overridden' : 'no effect'), same: badge('off', 'another policy sets the same'),
  default: badge('off', 'equals the default'),
})[text] || badge('info', 'not known');

/** Asks where a policy is in force on a dataplane. */
export const explain = (policy, dataplane, signal) => send('POST', '/v1/explain', {policy: {type: policy.type,
  mesh: policy.mesh, name: policy.name, dataplane}}, {signal});

/** Returns the policies that override some field, each once. */
export function overriding(answer) {
  const found = new Map();
  for (const p of answer.items.flatMap(i => i.places.flatMap(x => x.fields.flatMap(f => f.by || [])))) {
    found.set([p.type, p.mesh, p.name].join('/'), p);
  }
  return [...found.values()];
}

const PLACES = {proxy: 'on the proxy', inbound: 'on inbound', outbounds: 'on outbounds', route: 'on the route'};

function where(x) {
  const list = [...(x.inbounds || []).map(i => String(i.port)), ...(x.outbounds || []).map(o => o.name)];
  const more = list.length > 12 ? ` and ${list.length - 12} more` : '';
  return [PLACES[x.on] || x.on, ' ', name(list.slice(0, 12).join(', '), 200), more, x.route
    ? [' ', name(x.route, 100)] : null];
}

/** Returns the description of an answer about a policy on a dataplane. */
export function details(answer) {
  const overridden = overriding(answer);
  return [h('p', null, answer.selected ? effect(answer.effect, overridden.length) : badge('off', 'not selected'),
    ' ', name(answer.reason, 300)),
    overridden.length ? h('p', null, 'Overridden by ', overridden.slice(0,
      10).map((p, i) => [i ? ', ' : '', resourceLink(p)])) : null,
    answer.items.slice(0, 50).map(item => h('section', null, h('h3', null, h('code', null, name(item.field)),
      item.about ? [' ', name(item.about, 120)] : null,
      ' ', effect(item.effect)), item.places.slice(0, 20).map(x => [h('p', {class: 'quiet'}, where(x)), table([
      {title: 'Field', cell: f => h('code', null, name(f.path, 100))},
        {title: 'Value', cell: f => h('code', null, name(JSON.stringify(f.value), 120))},
      {title: 'State', cell: f => [effect(f.effect, f.by?.length), f.reason ? [' ', name(f.reason, 200)] : null]},
      {title: 'By', cell: f => f.by?.length ? f.by.map((p, i) => [i ? ', ' : '', source(p)]) : '–'},
    ], x.fields, {most: 30})]))),
    answer.items.length > 50 ? h('p', {class: 'quiet'}, `and ${plural(answer.items.length - 50, 'more item')}`)
      : null,
    answer.warnings?.length ? h('ul', null, answer.warnings.slice(0,
      20).map(w => h('li', {class: 'warn'}, name(w, 600)))) : null];
}
