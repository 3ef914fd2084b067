// What a change does to the proxies, by its causes.

import {h, name} from '../core/dom.js';
import {key, plural} from '../core/format.js';
import {resource} from '../core/route.js';
import {badge, command, panel, resourceLink} from '../core/widgets.js';
import {typeName} from './kinds.js';

const ACTIONS = {created: 'ok', changed: 'info', updated: 'info', deleted: 'bad', unchanged: 'off', failed: 'bad'};

/** Returns an action as a word with a color. */
export const action = text => badge(ACTIONS[text] || 'info', text);

/** Returns a list of changed fields. */
export function fields(list, most = 40) {
  return h('ul', {class: 'changes'}, list.slice(0, most).map(f => h('li', null,
    h('code', null, name(f.path || 'all', 160)), ' ',
    f.before === undefined ? null : h('span', {class: 'before'}, value(f.before)),
    f.before !== undefined && f.after !== undefined ? ' → ' : null,
    f.after === undefined ? null : h('span', {class: 'after'}, value(f.after)),
    f.by?.length > 1 ? [' ', h('span', {class: 'quiet'}, 'by ',
      f.by.map((p, i) => [i ? ', ' : '', resourceLink(p)]))] : null)),
  list.length > most ? h('li', {class: 'quiet'}, `and ${plural(list.length - most, 'more field')}`) : null);
}

const value = v => name(JSON.stringify(v), 300);

const SCOPES = {connected: 'connected to this agent', all: 'all dataplanes, because none is connected',
  named: 'chosen'};

/** Returns the description of a diff. */
export function diff(d) {
  const changed = d.proxies.filter(p => p.action !== 'unchanged');
  const blocking = d.findings.filter(f => f.severity !== 'warning');
  const parts = [
    h('p', null, h('strong', null, changed.length
      ? `${changed.length} of ${plural(d.compared, 'proxy changes', 'proxies change')}`
      : `No config of ${plural(d.compared, 'proxy', 'proxies')} changes`), ` (${SCOPES[d.scope] || d.scope})`),
    findings(blocking, 'bad', 'This change would be refused, because Envoy could not use the config'),
    findings(d.findings.filter(f => !blocking.includes(f)), 'warn', 'Findings'),
    d.warnings.length ? h('div', {class: 'notice warn'}, h('strong', null, 'Warnings'),
      h('ul', null, d.warnings.slice(0, 30).map(w =>
      h('li', null, w.resource ? [name(typeof w.resource === 'string' ? w.resource : key(w.resource)), ': '] : null,
        name(w.reason, 600))))) : null,
    d.resources.length ? h('ul', {class: 'changes'}, d.resources.slice(0,
      50).map(r => h('li', null, action(r.action), ' ',
      h('a', {href: resource(r)}, name(key(r))), r.shadow ? [' ', badge('info', 'shadow')] : null,
      r.owner ? h('span', {class: 'quiet'}, ' in ', name(r.owner.replace(/^file:/, ''), 120)) : null,
      r.fields?.length ? fields(r.fields) : null)),
    d.resources.length > 50 ? h('li', {class: 'quiet'}, `and ${d.resources.length - 50} more`) : null)
      : h('p', {class: 'quiet'}, 'The resources are equal to those in force.'),
    causes(d),
  ];
  return panel('Effect', {class: 'effect'}, parts);
}

function findings(list, color, title) {
  if (!list.length) return null;
  return h('div', {class: `notice ${color}`}, h('strong', null, title),
    h('ul', null, list.slice(0, 30).map(f => h('li', null,
    f.causes?.length ? [f.causes.slice(0, 3).map((c, i) => [i ? ', ' : '', resourceLink(c), c.field ? ` ${c.field}`
      : '']), ': '] : null,
    name(`${typeName(f.type || '')} ${f.resource || ''}${f.pointer ? ' at ' + f.pointer : ''}: `, 300),
    name(f.message || f.title, 600),
    f.rule ? h('span', {class: 'quiet'}, ` (rule ${f.rule})`) : null))));
}

// One section for each set of resources that causes changes, with the proxies that it changes.
function causes(d) {
  const groups = new Map();
  for (const p of d.proxies) {
    const by = p.policies || [], id = by.map(key).join('\n');
    if (!groups.has(id)) groups.set(id, {by, list: []});
    groups.get(id).list.push(p);
  }
  return [...groups.values()].sort((a, b) => b.list.length - a.list.length).slice(0, 50).map(g => {
    const changed = g.list.filter(p => p.action !== 'unchanged'), rest = g.list.filter(p => p.action === 'unchanged');
    const title = changed.length ? [h('strong', null, plural(changed.length, 'proxy', 'proxies')),
      rest.length ? ` and the rules of ${rest.length} more` : '']
        : `the rules of ${plural(rest.length, 'proxy', 'proxies')}`;
    return lazy([title, g.by.length ? ' by ' : '', g.by.slice(0, 5).map((p, i) => [i ? ', ' : '', name(key(p))]),
      g.by.length > 5 ? ` and ${g.by.length - 5} more` : ''],
        () => proxies([...changed, ...rest], changed.length === 1),
    groups.size === 1 && changed.length > 0 && changed.length <= 3);
  });
}

function proxies(list, open, from = 0) {
  const out = list.slice(from, from + 50).map((p, i) => lazy(
    [action(p.action), ' ', name(p.mesh ? `${p.mesh}/${p.name}` : p.name), ' ', h('span', {class: 'quiet'},
      summary(p))], () => one(p), open && from + i === 0));
  const left = list.length - from - 50;
  if (left > 0) {
    const more = h('button', {type: 'button', onclick: () => more.replaceWith(...proxies(list, false, from + 50))},
      `Show more (${plural(left, 'proxy', 'proxies')} left)`);
    out.push(more);
  }
  return out;
}

const summary = p => (p.config?.summary ||
  []).map(s => `${typeName(s.type)} ${[s.added && `+${s.added}`, s.changed && `~${s.changed}`,
  s.removed && `−${s.removed}`].filter(Boolean).join(' ')}`).join(', ');

function one(p) {
  if (p.error) return h('p', {class: 'bad'}, name(p.error, 1000));
  const items = p.config?.items || [];
  return [h('p', null, h('a', {href: resource({type: 'Dataplane', mesh: p.mesh, name: p.name})}, 'Show this proxy')),
    p.truncated ? h('p', {class: 'warn'}, 'The answer is too large to have every change. ',
      command(`nearside diff -f FILE -m ${p.mesh} --dataplane ${p.name}`)) : null,
    p.unattributed ? h('p', {class: 'warn'}, 'Too many resources may be the cause, so the causes are incomplete.')
      : null,
    items.slice(0, 100).map(x => h('div', null, h('h3', null, action(x.action), ` ${typeName(x.type)} `,
      name(x.name)),
      x.changes?.length ? fields(x.changes) : null)),
    items.length > 100 ? h('p', {class: 'quiet'}, `and ${items.length - 100} more resources`) : null,
    p.rules?.items?.length ? lazy(`Rules: ${plural(p.rules.items.length, 'change')}`,
      () => p.rules.items.slice(0, 100).map(x =>
      h('div', null, h('h3', null, action(x.action), ` ${x.type} `, name(x.name)), x.changes?.length
        ? fields(x.changes) : null))) : null];
}

/** Returns details whose content is built when they are opened. */
export function lazy(title, content, open = false) {
  const el = h('details', {class: 'item', ontoggle: fill}, h('summary', null, title));
  let filled = false;
  function fill() {
    if (filled || !el.open) return;
    filled = true;
    el.append(h('div', null, content()));
  }
  el.open = open;
  fill();
  return el;
}
