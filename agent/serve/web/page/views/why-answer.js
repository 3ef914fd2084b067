// The answer to a question: the outcome, and the steps through each proxy with their policies.

import {h, name} from '../core/dom.js';
import {count, plural} from '../core/format.js';
import {link, resource} from '../core/route.js';
import {badge, command, panel, source, when} from '../core/widgets.js';

/** The color of each verdict. */
export const VERDICTS = {allowed: 'ok', denied: 'bad', closed: 'bad', unreachable: 'warn', 'unknown host': 'warn'};

const TITLES = {
  allowed: 'Allowed', denied: 'Denied', closed: 'Closed', unreachable: 'Not reachable', 'unknown host': 'Unknown host',
};

const BOX = {ok: 'good', warn: 'warn', bad: 'bad'};

/** Returns the outcome: the verdict, what decides it, and how sure it is. */
export function outcome(flow, asked, note, files) {
  const way = deciding(flow);
  const step = decidingStep(flow);
  const decides = flow.verdict === 'allowed' ? permission(flow) : [
    h('p', null, 'Decided at ', h('strong', null, step ? label(step.at) : 'the start'), ' of the proxy of ',
      h('a', {href: resource(way.dataplane)}, name(way.dataplane.name)),
      step?.policies.length ? [' by ', list(step.policies)] : '; no policy sets this.'),
  ];
  const sends = [flow.status && `Envoy answers with status ${flow.status}`, flow.flag && `logs the flag ${flow.flag}`]
    .filter(Boolean).join(' and ');
  return h('div', {class: `verdict ${BOX[VERDICTS[flow.verdict]] || 'warn'}`},
    h('p', {class: 'answer'}, TITLES[flow.verdict] || flow.verdict),
    h('p', null, name(flow.reason, 1500)), decides,
    sends ? h('p', null, flow.status ? sends : `Envoy ${sends}`, '.') : null,
    flow.location ? h('p', null, 'Redirected to ', name(flow.location)) : null,
    note,
    h('p', {class: 'quiet'}, flow.accepted ? 'From the config that the Envoy has. '
      : files ? 'From the config that the files give. '
        : 'The Envoy is not connected: from the config that it would get. ', 'Asked ', when(asked), '.'));
}

// The policies of the servers that permit an allowed flow.
function permission(flow) {
  const found = new Map();
  for (const s of [flow, ...flow.servers].flatMap(w => w.steps)) {
    if (!s.saw?.endsWith('.rbac')) continue;
    for (const p of s.policies) found.set([p.type, p.mesh, p.name, p.field].join('/'), p);
  }
  return found.size ? h('p', null, 'Permitted by ', list([...found.values()].slice(0, 8)), '.') : null;
}

// The way that decides the verdict: that of the client, or the first server that differs from "allowed".
function deciding(flow) {
  const refusing = flow.verdict === 'denied' && flow.servers.find(s => s.verdict !== 'allowed');
  return refusing || flow;
}

// The step at which the flow ends; access logs come after it.
function decidingStep(flow) {
  if (flow.verdict === 'allowed') return null;
  return deciding(flow).steps.findLast(s => s.at !== 'access-log');
}

/** Returns the route at a glance: client, clusters, servers. */
export function hops(flow) {
  const client = h('li', null, h('span', {class: 'quiet'}, 'client'), h('a', {href: resource(flow.dataplane)},
    name(flow.dataplane.name, 40)));
  const clusters = flow.clusters.length ? h('li', null, h('span', {class: 'quiet'}, 'cluster'),
    flow.clusters.slice(0, 4).map(c => h('span', null, name(c.name, 50), c.total > c.weight
      ? h('span', {class: 'quiet'}, ` ${count(c.weight)} of ${count(c.total)}`) : null)),
    flow.clusters.length > 4 ? h('span', {class: 'quiet'}, `and ${flow.clusters.length - 4} more`) : null) : null;
  const servers = flow.servers.length ? h('li', null, h('span', {class: 'quiet'}, 'server'),
    flow.servers.map(s => h('span', null, badge(VERDICTS[s.verdict] || 'off', s.verdict), ' ',
      h('a', {href: resource(s.dataplane)}, name(s.dataplane.name, 40))))) : null;
  return h('ol', {class: 'hops', 'aria-label': 'Route'}, client,
    h('li', null, h('span', {class: 'quiet'}, 'dials'), name(flow.address, 60)), clusters, servers);
}

/** Returns the ways through the proxies. Those that decide are open. */
export function ways(flow) {
  const refused = flow.servers.some(s => s.verdict !== 'allowed');
  const step = decidingStep(flow);
  let open = 0;
  return [
    panel(['Proxy of the client ', h('a', {href: resource(flow.dataplane)}, name(flow.dataplane.name))], null,
      way(flow, step)),
    flow.servers.length ? panel('Proxies of the servers', null, flow.servers.map(s => {
      const show = (refused ? s.verdict !== 'allowed' : true) && open++ < 1;
      return h('details', {class: 'server', open: show, dataset: {key: `server-${s.dataplane.name}`}},
        h('summary', null, badge(VERDICTS[s.verdict] || 'off', s.verdict), ' ', name(s.dataplane.name), ' ',
          h('span', {class: 'quiet'}, name(s.reason, 200))),
        h('p', null, h('a', {href: resource(s.dataplane)}, 'Show the proxy')), way(s, step));
    })) : null,
    flow.beyond ? h('p', {class: 'notice'}, h('span', null, name(flow.beyond, 1000))) : null,
    flow.bypasses?.length ? h('p', {class: 'notice warn'}, h('span', null, 'The address belongs to ',
      flow.bypasses.map((b, i) => [i ? ', ' : '', name(b)]), ', but the dataplane has no outbound for it: the ',
      'policies of the service do not apply to the connection.')) : null,
  ];
}

function way(w, decides) {
  return [
    held(w), h('ol', {class: 'flow'}, w.steps.map(s => step(s, s === decides))),
    effects(w), clusters(w),
  ];
}

function held(w) {
  if (!w.held?.length) return null;
  return h('div', {class: 'notice warn'}, h('span', null, 'The Envoy does not have the newest form of:'), h('ul', null,
    w.held.map(x => h('li', null, `${x.type} `, h('code', null, name(x.name)), ': ', name(x.reason, 500)))));
}

const LABELS = {
  address: 'Name', listener: 'Listener', 'filter-chain': 'Filter chain', 'network-filter': 'Network filter',
  'http-filter': 'HTTP filter', 'virtual-host': 'Virtual host', route: 'Route', cluster: 'Cluster',
  'access-log': 'Access log', 'transport-socket': 'TLS', 'server-name': 'Server name',
  'transport-protocol': 'Transport protocol', 'application-protocol': 'Application protocol',
  'destination-port': 'Destination port', 'destination-ip': 'Destination address', inspection: 'Inspection',
  'original-dst': 'Original destination', 'source-ip': 'Source address', matcher: 'Matcher',
};

/** Returns the name of a step for people. */
export const label = at => LABELS[at] || at;

function step(s, decides) {
  const more = s.eliminated.length + (s.more || 0);
  return h('li', {class: decides ? 'decides' : null},
    h('span', {class: 'at'}, label(s.at), decides ? h('span', {class: 'unseen'}, ' (decides)') : null),
    h('div', null,
      h('p', null, s.saw ? [h('span', {class: 'mono'}, name(s.saw)), h('span', {class: 'quiet'}, ' → ')] : null,
        s.chose ? h('span', {class: 'mono'}, name(s.chose, 200)) : h('em', null, 'nothing matches'),
        s.note ? h('span', {class: 'quiet'}, ' (', name(s.note, 300), ')') : null),
      s.policies.length ? h('p', {class: 'by'}, 'by ', list(s.policies)) : null,
      more ? h('details', {class: 'quiet'}, h('summary', null, `${plural(more, 'candidate')} did not match`),
        h('ul', null, s.eliminated.slice(0, 100).map(e => h('li', null, h('span', {class: 'mono'}, name(e.name)), ': ',
          name(e.why, 300)))),
        s.more || s.eliminated.length > 100
          ? h('p', null, `and ${count(more - Math.min(100, s.eliminated.length))} more`) : null) : null));
}

function list(policies) {
  return policies.map((p, i) => [i ? ', ' : '', source(p),
    p.revision ? h('span', {class: 'quiet'}, ` revision ${count(p.revision)}`) : null]);
}

function effects(w) {
  const rows = [
    ...(w.effects || []).map(e => [e.kind, e.text, e.policies]),
    ...(w.mirrors || []).map(m => ['mirror', `${m.percent} % of the requests to ${m.cluster}` +
      (m.missing ? ', which does not exist' : ''), []]),
    ...(w.accessLogs || []).map(l => ['logged', l.sink + (l.conditional ? ', if its filter fits' : ''), []]),
  ];
  if (w.wait) rows.unshift(['wait', silence(w.wait), []]);
  if (!rows.length) return null;
  return [h('h3', null, 'Effects'), h('dl', {class: 'effects'}, rows.map(([kind, text, policies]) => [
    h('dt', null, kind), h('dd', null, name(text, 300), policies.length ? [' by ', list(policies)] : null)]))];
}

function silence(w) {
  const first = `a client that sends nothing waits ${w.after || 'without a limit'} at ${w.filter}`;
  if (!w.after) return first;
  return first + (w.closes ? '; then its connection is closed' : '; then it continues without inspection');
}

function clusters(w) {
  if (!w.clusters.length) return null;
  return [h('h3', null, 'Destination'), h('ul', {class: 'flat'}, w.clusters.slice(0, 20).map(c => h('li', null,
    h('span', {class: 'mono'}, name(c.name)), ' ',
    c.missing ? h('span', {class: 'bad'}, 'there is no such cluster')
      : [c.total > c.weight ? `${count(c.weight)} of ${count(c.total)}, ` : null,
        h('span', {class: c.endpoints ? 'quiet' : 'bad'}, plural(c.endpoints, 'endpoint')),
        c.addresses.length ? [' ', h('span', {class: 'mono quiet'}, name(c.addresses.slice(0, 4).join(', '), 120),
          c.addresses.length > 4 ? '…' : '')] : null,
        c.pinned ? h('span', {class: 'quiet'}, ' resolved by the proxy, whatever address is dialed') : null],
    c.request ? arrives(c.request) : null)))];
}

function arrives(r) {
  const lines = [`${r.method || ''} ${r.path || ''}`.trim(), r.host ? `host: ${r.host}` : '',
    ...(r.headers || []).map(x => `${x.name}: ${x.value}`), r.note ? `(${r.note})` : ''].filter(Boolean);
  return h('details', {class: 'quiet'}, h('summary', null, 'The request as it arrives'),
    h('pre', {tabindex: '0'}, lines.map(l => [name(l, 300), '\n'])));
}

/** Returns the answer with shadow policies, beside the one without them. */
export function shadow(flow) {
  if (!flow.shadow) return null;
  if (!flow.parts) {
    return panel('With shadow policies', null, h('p', null, 'The same: no shadow policy changes this answer.'));
  }
  return panel('With shadow policies', null,
    h('p', null, badge(VERDICTS[flow.shadow.verdict] || 'off', flow.shadow.verdict), ' ',
      name(flow.shadow.reason, 800)),
    h('p', {class: 'quiet'}, 'The first step that differs: ', h('strong', null, label(flow.parts)), '.'),
    h('details', {dataset: {key: 'shadow'}}, h('summary', null, 'All steps with shadow policies'), ways(flow.shadow)),
    h('p', null, h('a', {href: link('change', {shadow: 1})}, 'Show what all shadow policies would change')));
}

/** Returns how to ask the same on the command line. */
export const elsewhere = text => panel('On the command line', null, command(text));
