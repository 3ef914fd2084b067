// The state of a proxy: its problems, the versions of its config, rejections, and events.

import {h, name, refresh} from '../core/dom.js';
import {count} from '../core/format.js';
import {badge, command, empty, panel, source, table, when} from '../core/widgets.js';
import {typeName} from './kinds.js';

/** Renders the part. `body.draw` becomes the function that draws it again. */
export async function render(el, part, body) {
  body.draw = () => draw(el, part.status());
  body.draw();
}

function draw(el, p) {
  const c = p.clients.find(x => x.streams) || p.clients[0];
  refresh(el, problems(p), rejections(c), p.endpoints ? panel('Receives no traffic', null, h('p', null,
    badge('warn', p.endpoints.state), ' ', name(p.endpoints.reason, 300), ' since ', when(p.endpoints.since))) : null,
  c ? versions(c) : panel('Config', null, empty('No Envoy of this proxy was connected since the agent started.')),
  c ? client(p, c) : null, inForce(p), c ? events(c) : null);
}

function problems(p) {
  const refused = (p.refused || []).map(r => h('li', null, badge('bad', 'refused'), ' ', name(r.reason, 400)));
  if (!p.problems.length && !refused.length) return null;
  return panel('Problems', null, h('ul', null, p.problems.map(x => h('li', null,
    badge(x.severity === 'error' ? 'bad' : 'warn', x.severity), ' ', name(x.reason, 600),
    x.command ? [' ', command(x.command)] : null)), refused));
}

const EVIDENCE = {alone: 'without it, the resource would be valid', changed: 'changed since the last acknowledgment'};

function blames(list) {
  if (!list?.length) return h('p', {class: 'quiet'}, 'No policy was found behind it.');
  const paths = b => b.paths?.length ? [' at ', b.paths.map((x, i) => [i ? ', ' : '', h('code', null, name(x))])]
    : null;
  return [h('p', {class: 'quiet'}, list.some(b => b.evidence === 'host')
    ? "The cause is on Envoy's host, not in a policy. These policies shape the resource:"
      : 'The most likely cause first:'),
  h('ul', null, list.slice(0, 8).map(b => h('li', null, source(b), h('span', {class: 'quiet'},
    EVIDENCE[b.evidence] ? `: ${EVIDENCE[b.evidence]}` : '', paths(b)))))];
}

function rejections(c) {
  const list = (c?.types || []).flatMap(t => [
    ...(t.nack && !t.nack.resources?.every(n => t.held.some(x => x.name === n))
      ? [{kind: typeName(t.typeUrl), title: 'Rejected by Envoy', what: t.nack.resources, ...t.nack}] : []),
    ...t.held.map(x => ({kind: typeName(t.typeUrl), what: [x.name], ...x,
      title: x.by === 'proxy' ? 'Rejected by Envoy' : x.by === 'check'
        ? `Withheld by the check${x.rule ? ` (rule ${x.rule})` : ''}`
        : 'Left out by the agent'})),
  ]);
  if (!list.length) return null;
  return panel('Rejections', {class: 'rejections'}, list.slice(0, 100).map(r => h('article', null,
    h('h3', null, badge('bad', r.title), ' ', r.kind, ' ', (r.what || []).slice(0,
      8).map((x, i) => [i ? ', ' : '', name(x)])),
    h('p', null, name(r.reason, 1000), ' ', h('span', {class: 'quiet'}, when(r.time))),
    r.acceptedVersion ? h('p', {class: 'quiet'}, 'In force instead: version ',
      h('code', null, r.acceptedVersion.slice(0, 12))) : null,
    blames(r.policies))));
}

function versions(c) {
  return panel('Versions of the config', null, table([
    {title: 'Type', value: t => typeName(t.typeUrl), cell: t => typeName(t.typeUrl)},
    {title: 'Resources', class: 'number', value: t => t.resources, cell: t => count(t.resources)},
    {title: 'Sent', cell: t => version(t.sentVersion, t.sentAt)},
    {title: 'Acknowledged', cell: t => t.ackedVersion ? [!t.sentVersion ? null : t.ackedVersion === t.sentVersion
      ? [badge('ok', 'same'), ' '] : [badge('warn', 'older'), ' '], version(t.ackedVersion, t.ackedAt)] : '–'},
    {title: 'Rejections', class: 'number', value: t => t.rejections, cell: t => count(t.rejections)},
    {title: 'Held', class: 'number', value: t => t.held.length, cell: t => count(t.held.length)},
  ], c.types, {empty: h('p', {class: 'quiet'}, 'The client has requested nothing yet.')}));
}

const version = (text, time) => text ? [h('code', {title: text}, text.slice(0, 12)), ' ',
  h('span', {class: 'quiet'}, when(time))] : '–';

function client(p, c) {
  const {pod, uid} = c.peer;
  const user = pod ? `pod ${pod.namespace}/${pod.name}` : uid !== undefined ? `user ${uid}` : '';
  const reported = n => n !== null ? count(n) : pod ? 'the agent cannot read counters in pods' : 'not reported';
  const rows = [
    ['Client', `${c.userAgent || c.flavor} ${c.version || ''}`], ['Node ID', name(c.nodeID)],
    ['Peer', [user, c.peer.pid ? `process ${c.peer.pid}` : ''].filter(Boolean).join(', ')],
    ['Connected', c.streams ? when(c.connectedAt) : 'not now'],
    ['Refused connections', reported(p.refusedConnections)],
    ['Failed log writes', reported(p.logWritesFailed)],
  ];
  return panel('Client', null, h('dl', null, rows.map(([k, v]) => [h('dt', null, k), h('dd', null, v || '–')])));
}

function inForce(p) {
  return (p.inForce || []).map(f => panel(`${f.type}: ${f.mode}`, null, h('p', null, 'By ', source(f.decides)),
    table([
      {title: 'Protocol', cell: x => x.protocol}, {title: 'Destination', value: x => x.value,
        cell: x => name(x.value)},
      {title: 'Port', class: 'number', value: x => x.port || 0, cell: x => x.port || 'all'},
      {title: 'Reaches', cell: x => name(x.reaches, 200)},
      {title: 'Family', cell: x => [x.ipv4 && 'IPv4', x.ipv6 && 'IPv6'].filter(Boolean).join(', ')},
      {title: 'Cluster', cell: x => h('code', null, name(x.cluster, 200))},
      {title: 'By', cell: x => x.policies.map((y, i) => [i ? ', ' : '', source(y)])},
    ], f.permits, {empty: h('p', {class: 'quiet'}, 'It permits no single destination.')})));
}

function events(c) {
  return panel('Events', null, table([
    {title: 'Time', cell: e => when(e.time)}, {title: 'Event', cell: e => e.kind},
    {title: 'Type', cell: e => e.typeUrl ? typeName(e.typeUrl) : '–'},
    {title: 'Version', cell: e => e.version ? h('code', {title: e.version}, e.version.slice(0, 12)) : '–'},
    {title: 'Detail', cell: e => [e.reason ? name(e.reason, 400) : null, e.resources?.length
      ? h('span', {class: 'quiet'}, e.reason ? ': ' : '', name(e.resources.join(', '), 200)) : null]},
  ], c.events.toReversed(), {most: 20, empty: h('p', {class: 'quiet'}, 'None yet.')}));
}
