// The details of the map: a service, a group, or the edges between two nodes.

import {h, name, visible} from '../../core/dom.js';
import {ago, count, percent, plural} from '../../core/format.js';
import {link} from '../../core/route.js';
import {badge, panel, source, table} from '../../core/widgets.js';
import {keyOf} from './model.js';

const STATE = {allowed: 'ok', partly: 'warn', denied: 'bad'};
const WORD = {allowed: 'allowed', partly: 'denied in part', denied: 'denied'};

/** Returns the permission of an edge as a word with a color. */
export const permission = e => badge(STATE[e.permission] || 'off', WORD[e.permission] || e.permission);

/** Returns the address of the question why a client may call a destination, or may not. */
export function whyOf(e, services) {
  const to = services.find(s => s.mesh === e.mesh && s.name === e.to);
  return link('why', {mesh: e.mesh, from: e.from, to: to?.destinations?.[0] || e.to});
}

const whyLabel = (from, to) => `Why? From ${visible(from.slice(0, 80))} to ${visible(to.slice(0, 80))}`;

/** Returns the traffic of an edge in words. */
export function traffic(e) {
  if (!e.requests && !e.failed && !e.refused) return e.counted === 0 ? '–' : 'none';
  const words = [count(e.requests)];
  if (e.failed) words.push(`${count(e.failed)} failed` + (e.requests ? ` (${percent(e.failed / e.requests)})` : ''));
  if (e.refused) words.push(`${count(e.refused)} refused`);
  return words.join(', ');
}

/** Returns the list of edges: the same information as the graph. */
export function edgeTable(edges, services, {caption, choose, href, empty} = {}) {
  const service = (e, side) => {
    const to = {node: `service:${e.mesh}/${e[side]}`};
    return h('a', {href: href({...to, focus: `${e.mesh}/${e[side]}`})}, name(e[side], 48));
  };
  const many = new Set(edges.map(e => e.mesh)).size > 1;
  return table([
    {title: 'Client', value: e => e.from, cell: e => h('span', null, service(e, 'from'),
      many ? h('span', {class: 'quiet'}, ' ', name(e.mesh, 30)) : null)},
    {title: 'Destination', value: e => e.to, cell: e => service(e, 'to')},
    {title: 'Permission', value: e => e.permission, cell: permission},
    {title: 'Outbound', value: e => e.reach ? 1 : 0, cell: e => e.reach ? e.listed ? 'yes, named' : 'yes' : 'no'},
    {title: 'Requests', class: 'number', value: e => e.requests, cell: traffic},
    {title: 'Decided by', value: e => e.policy?.name || '', cell: e => e.policy ? source(e.policy)
      : h('span', {class: 'quiet'}, 'no policy')},
    {title: 'Why', cell: e => h('div', null, h('span', null, name(e.why, 160)), ' ',
      h('a', {href: whyOf(e, services), 'aria-label': whyLabel(e.from, e.to)}, 'Why?'))},
  ], edges, {caption, empty, key: e => `${e.mesh}/${e.from}/${e.to}`});
}

/** Returns the panel about the selection, or null. */
export function details(model, {selection, services, choose, href, close}) {
  const shut = h('button', {type: 'button', class: 'plain', onclick: close}, 'Close');
  if (selection.from) {
    const l = model.links.find(x => x.from === selection.from && x.to === selection.to);
    if (!l) return null;
    const label = id => model.nodes.find(n => n.id === id)?.label || id;
    const title = h('span', null, name(label(l.from), 48), ' → ', name(label(l.to), 48));
    if (l.edges.length === 1) return single(title, l.edges[0], {services, shut});
    return panel(title, {id: 'details'}, h('p', {class: 'row'}, h('span', {class: 'quiet'},
      `${plural(l.edges.length, 'edge')} between these groups`), shut), edgeTable(l.edges, services, {choose, href}));
  }
  const node = selection.node && model.nodes.find(n => n.id === selection.node);
  if (!node) return null;
  return node.single ? service(node, model, {services, choose, href, shut}) : group(node, model, {href, shut});
}

function single(title, e, {services, shut}) {
  return panel(title, {id: 'details'},
    h('dl', null,
      h('dt', null, 'Permission'), h('dd', null, permission(e), ' ', name(e.why, 400)),
      h('dt', null, 'Decided by'), h('dd', null, e.policy ? source(e.policy) : 'no policy'),
      h('dt', null, 'Outbound'), h('dd', null, e.reach ? `The proxies of the client have an outbound to it${e.listed
        ? ', and a dataplane names it.' : '.'}` : 'No proxy of the client has an outbound to it.'),
      h('dt', null, 'Traffic'), h('dd', null, e.counted
        ? `${traffic(e)} (counted by ${e.counted} of ${plural(e.proxies, 'proxy', 'proxies')})`
        : 'not counted: no proxy of the client is connected to this node')),
    h('p', {class: 'row'}, h('a', {href: whyOf(e, services)}, 'Why? All steps of a request'), shut));
}

function service(node, model, {services, choose, href, shut}) {
  const s = node.single, k = keyOf(s);
  const edges = model.links.flatMap(l => l.edges)
    .filter(e => e.mesh === s.mesh && (e.from === s.name || e.to === s.name));
  const tags = Object.entries(s.tags || {});
  const shown = tags.slice(0, 30).map(([t, v]) => h('span', {class: 'tag'}, name(`${t}: ${v}`, 60)));
  return panel(h('span', null, name(s.name, 120)), {id: 'details'},
    h('p', {class: 'row'}, h('a', {href: href({focus: k, node: node.id})}, 'Show only its neighbors'),
      s.gateway ? null
        : h('a', {href: link('why', {mesh: s.mesh, to: s.destinations?.[0] || s.name})}, 'Why? Who may call it'),
      s.dataplanes ? h('a', {href: link('proxies', {mesh: s.mesh, q: s.name})}, 'Its proxies') : null, shut),
    h('dl', null,
      h('dt', null, 'Mesh'), h('dd', null, name(s.mesh)),
      h('dt', null, 'Kind'), h('dd', null, s.kind === 'ServiceTag' ? 'kuma.io/service' : name(s.kind),
        s.gateway ? ' (gateway)' : '', s.outside ? ' (outside the mesh)' : ''),
      s.protocol ? [h('dt', null, 'Protocol'), h('dd', null, name(s.protocol))] : null,
      s.namespace ? [h('dt', null, 'Namespace'), h('dd', null, name(s.namespace))] : null,
      s.zones?.length ? [h('dt', null, 'Zones'), h('dd', null, name(s.zones.join(', '), 200))] : null,
      h('dt', null, 'Dataplanes'), h('dd', null, s.outside ? 'none: it is outside the mesh'
        : count(s.dataplanes) + (s.dataplanes ? `, ${s.connected} connected to this node` : ', so nothing answers')),
      shown.length ? [h('dt', null, 'Tags'), h('dd', null, h('span', {class: 'tags'}, shown))] : null,
      h('dt', null, 'Edges'), h('dd', null, `calls ${count(s.calls)}, called by ${count(s.calledBy)}`)),
    edges.length ? edgeTable(edges, services, {caption: 'Edges of this service', choose, href}) : null);
}

function group(node, model, {href, shut}) {
  const inside = model.links.find(l => l.from === node.id && l.to === node.id);
  const open = node.id === 'rest' ? null : h('a', {href: href({inside: node.id, node: ''})}, 'Show its services');
  return panel(h('span', null, name(node.label, 120)), {id: 'details'},
    h('p', {class: 'row'}, open, shut),
    h('p', null, plural(node.members.length, 'service'),
      inside ? `, ${plural(inside.edges.length, 'edge')} between them` : ''),
    table([
      {title: 'Service', value: s => s.name, cell: s => h('a', {href: href({focus: keyOf(s),
        node: `service:${keyOf(s)}`})}, name(s.name, 60))},
      {title: 'Dataplanes', class: 'number', value: s => s.dataplanes, cell: s => count(s.dataplanes)},
      {title: 'Calls', class: 'number', value: s => s.calls, cell: s => count(s.calls)},
      {title: 'Called by', class: 'number', value: s => s.calledBy, cell: s => count(s.calledBy)},
    ], node.members, {most: 20, key: keyOf}));
}

/** Returns the refused connections of the last hour. */
export function refusals(list, services) {
  return table([
    {title: 'Client', value: r => r.from, cell: r => name(r.from, 48)},
    {title: 'Destination', value: r => r.destination, cell: r => r.destination ? name(r.destination, 60) : 'unknown'},
    {title: 'Count', class: 'number', value: r => r.count, cell: r => count(r.count)},
    {title: 'Last', value: r => r.last || '', cell: r => r.last ? ago(r.last) : 'time unknown'},
    {title: 'Reason', cell: r => name(r.reason, 200)},
    {title: 'Why?', cell: r => services.some(s => s.mesh === r.mesh && s.name === r.destination) || r.destination
      ? h('a', {href: link('why', {mesh: r.mesh, from: r.from, to: r.destination}),
        'aria-label': whyLabel(r.from, r.destination)}, 'Why?') : ''},
  ], list, {most: 20, key: r => `${r.mesh}/${r.from}/${r.destination}/${r.reason}`,
    empty: h('p', {class: 'quiet'}, 'No connection was refused in the last hour.')});
}
