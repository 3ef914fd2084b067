// The cards of Health: one for each part of the node.

import {h, name, svg} from '../core/dom.js';
import {bytes, count, duration, plural} from '../core/format.js';
import {link} from '../core/route.js';
import {badge, command, when} from '../core/widgets.js';

/**
 * Returns the cards of a status. Extra: `members` and `certificates`, or null. Files without an agent
 * have only the cards of their resources.
 */
export function cards(status, extra, files) {
  if (files) return h('div', {class: 'grid'}, proxies(status, true), config(status));
  const list = [
    proxies(status), config(status), members(extra.members), disk(status), ends(extra.certificates),
    dns(status), logs(status), memory(status), refused(status),
  ];
  return h('div', {class: 'grid'}, list.filter(Boolean));
}

// A card has a title that links to its view, a state, a large value, and rows.
function card(title, href, state, value, rows, ...more) {
  return h('section', {class: 'panel card'},
    h('h2', null, href ? h('a', {href, dataset: {key: `card-${title}`}}, title) : title,
      state ? badge(...state) : null),
    value ? h('p', {class: 'value'}, value) : null,
    rows?.length ? h('dl', null, rows.filter(Boolean).map(([k, v]) => [h('dt', null, k), h('dd', null, v)])) : null,
    more);
}

const STATES = [
  ['synced', 'ok'], ['pending', 'info'], ['stale', 'warn'], ['rejected', 'bad'], ['refused', 'bad'],
  ['unknown', 'warn'], ['elsewhere', 'off'], ['disconnected', 'off'],
];

function proxies(s, files) {
  const by = s.proxies || {};
  const total = Object.values(by).reduce((a, b) => a + b, 0);
  if (files && total) return card('Proxies', link('proxies'), null, plural(total, 'Dataplane'));
  if (!total) {
    return card('Proxies', link('proxies'), null, 'none', null,
      h('p', {class: 'quiet'}, files ? 'The files have no Dataplane. Add one:'
        : 'No Dataplane exists on this node, and no Envoy is connected. Add a Dataplane:'),
      h('p', null, h('a', {href: link('change')}, 'Write a resource')));
  }
  const rows = STATES.filter(([state]) => by[state]).map(([state, kind]) => [
    h('a', {href: link('proxies', {state}), dataset: {key: `state-${state}`}}, state),
    h('span', {class: kind === 'off' ? '' : kind === 'ok' ? 'good' : kind}, count(by[state])),
  ]);
  if (s.old?.length) rows.push(['old connections', `on ${plural(s.old.length, 'proxy', 'proxies')}`]);
  const idle = (by.disconnected || 0) === total;
  const bad = (by.rejected || 0) + (by.refused || 0) > 0;
  const shares = STATES.filter(([state]) => by[state]).map(([state, kind]) => ({kind, n: by[state]}));
  const grade = bad ? ['bad', 'rejected'] : by.stale ? ['warn', 'stale'] : by.unknown ? ['warn', 'unknown'] : null;
  return card('Proxies', link('proxies'), grade, count(total), rows, bar(shares, total),
    idle ? [h('p', {class: 'quiet'}, 'No Envoy is connected. Print the initial config of one:'),
      command('nearside bootstrap --name NAME')] : null);
}

// A bar of shares. The rows below it have the same numbers as text.
function bar(shares, total) {
  let x = 0;
  return svg('svg', {class: 'shares', viewBox: '0 0 100 4', preserveAspectRatio: 'none', 'aria-hidden': 'true'},
    shares.map(({kind, n}) => {
      const width = 100 * n / total;
      const rect = svg('rect', {class: `share ${kind}`, x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 4});
      x += width;
      return rect;
    }));
}

function config(s) {
  const r = s.reconcile;
  const total = Object.values(s.store.resources || {}).reduce((a, b) => a + b, 0);
  const files = s.files || [];
  const faulty = files.filter(f => f.faults?.length || f.missing || Object.keys(f.conflicts || {}).length);
  return card('Configuration', link('policies'), r && !r.behind ? null : ['info', 'computing'],
    plural(total, 'resource'), [
      r ? ['computed', [when(r.at), ` from revision ${count(r.revision)}`]] : ['computed', 'not yet'],
      r ? ['took', duration(r.seconds)] : null,
      r?.behind ? ['not reached yet', plural(r.behind, 'proxy', 'proxies')] : null,
      files.length ? ['files', [count(files.length), faulty.length
        ? [', ', h('span', {class: 'bad'}, `${count(faulty.length)} with faults`)] : ', all in force']] : null,
      ['changes', h('a', {href: link('history'), dataset: {key: 'history'}}, 'Who changed what')],
    ]);
}

function members(m) {
  if (!m) return null;
  if (!m.items.length) {
    return card('Members', link('members'), null, 'no pool', null,
      h('p', {class: 'quiet'}, 'This node is not in a pool: it has its own resources. To share them, set ',
        h('code', null, 'gossip.bind'), ', ', h('code', null, 'gossip.join'), ', and ',
        h('code', null, 'gossip.keyringFile'), '.'));
  }
  const alive = m.items.filter(i => i.state === 'alive');
  const away = m.items.filter(i => i.state === 'dead' || i.state === 'refused');
  const late = alive.filter(i => !i.self && !i.inSync);
  const lag = Math.max(0, ...late.map(i => i.lag || 0));
  const ahead = Math.max(0, ...alive.map(i => Math.abs(i.ahead || 0)));
  return card('Members', link('members'), away.length ? ['bad', `${away.length} away`]
    : late.length ? ['warn', 'not in sync'] : ['ok', 'in sync'], `${count(alive.length)} alive`, [
    away.length ? ['dead or refused', names(away)] : null,
    late.length ? ['not in sync', names(late)] : null,
    lag ? ['longest lag', duration(lag)] : null,
    ahead >= 0.5 ? ['clocks differ by', duration(ahead)] : null,
    ['zones', count(new Set(m.items.map(i => i.zone)).size)],
  ]);
}

function names(list) {
  return [list.slice(0, 3).map((m, i) => [i ? ', ' : '', name(m.name)]),
    list.length > 3 ? ` and ${list.length - 3} more` : ''];
}

const check = (s, id) => s.checks.find(c => c.name === id);

function grade(c) {
  if (!c) return null;
  return c.ok ? c.degraded ? [c.error ? 'bad' : 'warn', 'degraded'] : ['ok', 'good'] : ['bad', 'failed'];
}

function disk(s) {
  const all = ['space', 'state', 'state-file'].map(id => check(s, id)).filter(Boolean);
  const worst = all.find(c => !c.ok) || all.find(c => c.degraded) || all[0];
  const damaged = (s.store.damaged || []).length + (s.store.quarantined || []).length;
  return card('Disk', null, grade(worst), null, [
    ...all.map(c => [c.name, name(c.reason || 'good', 200)]),
    s.store.pending ? ['only in memory', plural(s.store.pending, 'resource')] : null,
    damaged ? ['not readable', h('span', {class: 'bad'}, plural(damaged, 'entry', 'entries'))] : null,
  ]);
}

const SOON = 30 * 86400; // seconds: authorities are renewed by hand
const LATE = 0.15; // proxies get a new certificate when 20 to 28 % of its life are left

function ends(list) {
  if (!list) return null;
  if (!list.length) {
    return card('Certificates', null, null, 'none', null, h('p', {class: 'quiet'},
      'No mesh has mTLS: proxies do not identify each other, and permissions are not enforced.'),
      h('p', null, h('a', {href: link('policies', {type: 'Mesh'})}, 'Show the meshes')));
  }
  const soon = c => c.left < (c.certificate === 'authority' ? SOON : LATE * (c.lifetime || 86400));
  const sorted = list.toSorted((a, b) => soon(b) - soon(a) || a.left - b.left);
  const bad = sorted.filter(soon);
  return card('Certificates', null, bad.some(c => c.left <= 0) ? ['bad', 'ended'] : bad.length ? ['warn', 'end soon']
    : ['ok', 'good'], null, sorted.slice(0, 6).map(c => [
    [c.certificate === 'authority' ? 'CA of ' : 'first proxy of ', name(c.mesh, 30)],
    h('span', {class: soon(c) ? 'bad' : ''},
      c.left > 0 ? `ends in ${duration(c.left)}` : `ended ${duration(c.left)} ago`),
  ]), sorted.length > 6 ? h('p', {class: 'quiet'}, `${sorted.length - 6} more end later.`) : null,
  bad.length ? command('nearside status') : null);
}

/** Returns the certificates in a text of metrics: `{mesh, certificate, left, lifetime}` in seconds. */
export function certificates(text, now = Date.now()) {
  const found = new Map();
  const line = /^nearside_certificate_(expiration_timestamp|lifetime)_seconds\{(.*)\} (\S+)$/gm;
  for (const [, what, labels, value] of text.matchAll(line)) {
    const all = Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)]
      .map(([, k, v]) => [k, v.replace(/\\(.)/g, (_, c) => c === 'n' ? '\n' : c)]));
    const key = JSON.stringify([all.mesh, all.certificate]);
    const entry = found.get(key) || {mesh: all.mesh, certificate: all.certificate};
    if (what === 'lifetime') entry.lifetime = Number(value);
    else entry.left = Number(value) - now / 1000;
    found.set(key, entry);
  }
  return [...found.values()].filter(c => Number.isFinite(c.left));
}

function dns(s) {
  const d = s.dns;
  if (!d || d.state === 'off') {
    return card('DNS', link('dns'), null, 'off', null, h('p', {class: 'quiet'},
      'This node resolves no names of the mesh. To start the resolver, set ', h('code', null, 'dns.listen'), '.'));
  }
  const down = d.upstreams.filter(u => u.down).length;
  const queries = Object.entries(d.queries || {}).sort((a, b) => b[1] - a[1]);
  return card('DNS', link('dns'), d.state === 'serving' ? down ? ['warn', 'upstream down'] : ['ok', 'serving']
    : [d.state === 'failed' ? 'bad' : 'info', d.state], plural(d.names, 'name'), [
    d.reason ? ['reason', name(d.reason, 200)] : null,
    ['listens on', name((d.listen || []).join(', ') || 'nothing')],
    ['upstreams', down ? h('span', {class: 'warn'}, `${down} of ${d.upstreams.length} down`)
      : `${d.upstreams.length} up`],
    ...queries.slice(0, 4).map(([result, n]) => [result, plural(n, 'query', 'queries')]),
  ]);
}

function logs(s) {
  const l = s.accessLogLines;
  const c = check(s, 'access-logs');
  if (!l) {
    return card('Access logs', link('logs'), grade(c), 'no stream', null, h('p', {class: 'quiet'},
      'No proxy logs through this agent. A MeshAccessLog with a file or a collector starts it.'),
    h('p', null, h('a', {href: link('policies', {type: 'MeshAccessLog'})}, 'Show MeshAccessLogs')));
  }
  const dropped = Object.entries(l.dropped || {}).filter(([, n]) => n);
  return card('Access logs', link('logs'), dropped.length ? ['warn', 'lines lost'] : grade(c),
    plural(l.written, 'line'), [
      ['read', count(l.read)],
      l.spooled ? ['wait on disk',
        [count(l.spooled), l.spoolOldestSeconds ? ` for ${duration(l.spoolOldestSeconds)}` : '']] : null,
      l.inFlight ? ['in memory', count(l.inFlight)] : null,
      ...dropped.map(([cause, n]) => [`dropped: ${cause}`, h('span', {class: 'bad'}, count(n))]),
      ['streams', count(l.streams)],
    ]);
}

function memory(s) {
  const m = s.memory;
  if (!m) return null;
  const share = m.limit ? m.resident / m.limit : 0;
  const grade = m.shortSince ? ['bad', 'short'] : share > 0.9 ? ['warn', 'near the limit'] : null;
  return card('Memory of the agent', null, grade, bytes(m.resident), [
      ['in use', bytes(m.inUse)],
      ['limit', m.limit ? bytes(m.limit) : 'none'],
      m.sheds ? ['caches dropped', plural(m.sheds, 'time')] : null,
      m.refused ? ['proxies refused', h('span', {class: 'bad'}, count(m.refused))] : null,
    ]);
}

function refused(s) {
  const streams = s.refused?.total || 0;
  const list = s.refusedConnections || [];
  const slow = s.inspectionTimeouts || [];
  if (!streams && !list.length && !slow.length) return null;
  const total = list.reduce((n, p) => n + p.count, 0);
  return card('Refused', link('map'), streams ? ['warn', 'Envoys refused'] : ['info', 'connections'],
    null, [
      streams ? [h('a', {href: link('proxies', {state: 'refused'})}, 'xDS streams'), count(streams)] : null,
      total ? ['connections to outside', count(total)] : null,
      ...list.slice(0, 3).map(p => [h('a', {href: link('proxy', {mesh: p.mesh, name: p.name})},
        name(`${p.mesh}/${p.name}`, 40)), plural(p.count, 'connection')]),
      slow.length ? ['clients too slow', `at ${plural(slow.length, 'proxy', 'proxies')}`] : null,
    ], total ? command('nearside passthrough suggest') : null);
}
