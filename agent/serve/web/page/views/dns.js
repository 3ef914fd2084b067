// The resolver: its state, the names that it answers with their owners, and queries that failed.

import {get, query, raw, send} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {count, percent, plural} from '../core/format.js';
import {keep, link, resource} from '../core/route.js';
import {badge, combobox, empty, failure, field, head, panel, table, when} from '../core/widgets.js';
import {pages} from '../parts/kinds.js';

const STATES = {serving: 'ok', off: 'off', pending: 'warn', failed: 'bad'};
const VERDICTS = {resolves: 'ok', forwarded: 'info', nodata: 'warn', nxdomain: 'bad', servfail: 'bad'};

/** Renders the view. Parameters: `q` (part of a name or owner), `ask` (a name to resolve), and `dataplane`. */
export async function render(root, ctx) {
  const state = h('div'), names = h('div'), failed = h('div');
  const search = h('input', {type: 'search', value: ctx.params.get('q') || '',
    placeholder: 'part of a name, owner, or address', oninput: () => {
    keep({q: search.value});
    draw();
  }});
  const live = ctx.session.mode === 'agent';
  let dns, items = [];

  async function read() {
    dns = await get('/v1/dns', ctx.signal);
    items = dns.next ? (await pages('/v1/dns', {}, ctx.signal, 50000)).items : dns.items;
    if (dns.state === 'off') items = (await pages('/v1/services', {}, ctx.signal, 50000)).items.flatMap(ofService);
    if (live) refresh(state, status(dns));
    draw();
  }

  function draw() {
    const wanted = search.value.trim().toLowerCase();
    const rows = items.filter(n => !wanted || [n.name, n.service, n.mesh,
      ...n.addresses].some(x => x.toLowerCase().includes(wanted)));
    refresh(names, table([
      {title: 'Name', value: n => n.name, cell: n => name(n.name)},
      {title: 'Owner', value: n => n.service, cell: n => [owner(n), n.contested?.length
        ? [' ', badge('warn', `${n.contested.length} more want it`)] : null]},
      {title: 'Mesh', value: n => n.mesh, cell: n => name(n.mesh, 40)},
      {title: 'Addresses', cell: n => name(n.addresses.join(', ') || 'none', 120)},
      {title: 'Ports', cell: n => name(n.ports.map(p => p.port).join(', ') || '–', 60)},
      {title: 'From', value: n => n.origin, cell: n => n.generator
        ? ['generator ', h('a', {href: link('policy', {type: 'HostnameGenerator',
        name: n.generator})}, name(n.generator, 40))] : n.origin === 'tag' ? 'the tag kuma.io/service' : n.origin},
    ], rows, {key: n => n.name, caption: `${plural(rows.length, 'name')}`, empty: items.length
      ? empty('No name fits the search.')
      : empty('The meshes have no names yet. Each service of a Dataplane gets one.',
        h('p', null, h('a', {href: link('change', {kind: 'Dataplane'})}, 'Add a Dataplane')))}));
    const contested = rows.filter(n => n.contested?.length);
    if (contested.length) names.append(h('h3', null, 'Names that several services want'),
      h('ul', null, contested.slice(0, 50).map(n =>
      h('li', null, name(n.name), ' belongs to ', owner(n), n.contested.slice(0,
        5).map(c => ['; not to ', owner(c), ': ', name(c.why, 200)])))));
  }

  root.append(head('DNS', 'Names of the meshes, and who owns them.'),
    h('div', {class: 'columns'}, live ? state : null, live ? lookup(ctx) : null),
    panel('Names', null, live ? null : h('p', {class: 'quiet'}, 'The names that the resolver of a node answers.'),
      h('div', {class: 'row filters'}, field('Search', search)), names), failed);
  await read();
  const refused = () => failures(dns, ctx).then(el => refresh(failed, el), err => err.name === 'AbortError' ||
    replace(failed, panel('Failed queries', null, failure(err, refused))));
  if (!live) return;
  await refused();
  ctx.live(['change'], read, 500);
  let timer = setTimeout(again, 15000);
  async function again() {
    if (document.visibilityState === 'visible') await refused();
    if (!ctx.signal.aborted) timer = setTimeout(again, 15000);
  }
  ctx.atEnd(() => clearTimeout(timer));
}

// The names of a service, for a resolver that is off.
const ofService = s => s.hostnames.filter(x => x.generated).map(x => ({name: x.hostname, mesh: s.mesh, kind: s.kind,
  service: s.name, addresses: s.vips || [], ports: s.ports || [], origin: x.origin, generator: x.generator}));

const owner = n => n.kind === 'ServiceTag' ? h('span', null, 'tag ', name(n.service))
  : h('a', {href: resource({type: n.kind, mesh: n.mesh,
  name: n.service})}, name(`${n.kind}/${n.service}`));

function status(d) {
  const total = d.cache.hits + d.cache.misses;
  const rows = [
    ['State', [badge(STATES[d.state] || 'info', d.state), d.reason ? [' ', name(d.reason, 400)] : null]],
    ['Listens on', name(d.listen.join(', ') || '–', 200)],
    ['While the agent is away', d.holder ? name(d.holder) : 'nothing holds its sockets'],
    ['Names', count(d.names)],
      ['Suffixes', name(d.suffixes.filter(s => s.origin !== 'range').map(s => s.name).join(', ') || 'none', 200)],
    ['Cache', total ? `${percent(d.cache.hits / total)} of ${plural(total, 'query', 'queries')}` : 'not used yet'],
    d.queryLog ? ['Query log', d.queryLog.sample ? `one in ${d.queryLog.sample}, in ${d.queryLog.file}` : 'off']
      : null,
  ].filter(Boolean);
  return panel('Resolver', null, d.state === 'off'
    ? empty('The resolver is off. Set dns.listen in the config of the agent.') : null,
    h('dl', null, rows.map(([k, v]) => [h('dt', null, k), h('dd', null, v)])), d.problem
      ? h('p', {class: 'notice warn'}, name(d.problem, 600)) : null,
    d.unowned?.length ? h('p', {class: 'notice warn'}, 'Outside of the meshes: ',
      d.unowned.slice(0, 10).map((s, i) => [i ? ', ' : '', name(s.name),
      s.reason ? ` (${s.reason})` : ''])) : null,
    d.upstreams.length ? table([
      {title: 'Upstream', cell: u => [name(u.address, 60), ' ', h('span', {class: 'quiet'}, u.protocol)]},
      {title: 'For', cell: u => name(u.domains?.join(', ') || 'other names', 100)},
      {title: 'State', cell: u => u.down ? badge('bad', 'down') : u.problem ? badge('warn', u.problem)
        : badge('ok', 'up')},
      {title: 'Queries', class: 'number', value: u => u.queries, cell: u => count(u.queries)},
      {title: 'Failed', class: 'number', value: u => u.failures + u.timeouts,
        cell: u => count(u.failures + u.timeouts)},
    ], d.upstreams, {caption: 'Servers of other names'}) : null);
}

// A form that asks what a name resolves to, and why.
function lookup(ctx) {
  const result = h('div', {'aria-live': 'polite'});
  const ask = async () => {
    const question = {name: box.input.value.trim(), dataplane: from.input.value.trim() || undefined};
    keep({ask: question.name, dataplane: question.dataplane});
    if (!question.name) return replace(result);
    try {
      replace(result, answer(await send('POST', '/v1/explain', {dns: question}, {signal: ctx.signal})));
    } catch (err) {
      if (err.name !== 'AbortError') replace(result, failure(err, ask));
    }
  };
  const box = combobox('Name', {value: ctx.params.get('ask') || '', placeholder: 'backend.mesh',
    suggest: async text =>
    (await get(query('/v1/dns', {name: text, size: 12}),
      ctx.signal).catch(() => ({items: []}))).items.map(n => ({value: n.name, note: n.service}))});
  const from = combobox('Asked by the dataplane (optional)', {value: ctx.params.get('dataplane') || '',
    suggest: async text =>
    (await get(query('/v1/names', {kind: 'Dataplane', prefix: text}), ctx.signal).catch(() => ({names: []}))).names});
  const form = h('form', {onsubmit: e => {
    e.preventDefault();
    ask();
  }}, h('div', {class: 'row'}, box.el, from.el, h('button', {class: 'primary'}, 'Resolve')));
  if (box.input.value) ask();
  return panel('What does a name resolve to?', null, form, result);
}

function answer(a) {
  return [h('p', null, badge(VERDICTS[a.verdict] || 'info', a.verdict), ' ', name(a.reason, 400)),
    a.client?.note ? h('p', {class: 'quiet'}, name(a.client.note, 300)) : null,
    h('ol', null, a.steps.map(s => h('li', null, name(s.name), ' ', badge(VERDICTS[s.outcome] || 'info', s.outcome),
      ' ', name(s.reason, 300),
      s.owner ? [' Owner: ', owner(s.owner)] : null, s.records?.length ? h('ul', null, s.records.slice(0, 20).map(r =>
        h('li', null, h('code', null, name(`${r.type} ${r.data}`, 200))))) : null)))];
}

// The failed queries of the last hour, by client and name.
async function failures(d, ctx) {
  if (!d.queryLog) return panel('Failed queries', null,
    empty('The query log needs the permission to inspect everything.', 'nearside access whoami'));
  if (!d.queryLog.sample) {
    return panel('Failed queries', null,
      empty('The query log is off, so clients are not known. Log each query with this in the config of the agent:',
      h('pre', null, 'dns:\n  queryLog: {sample: 1}'), 'systemctl reload nearside'));
  }
  const reply = await raw('GET', query('/v1/logs', {log: 'dns', since: '1h', limit: 5000, tail: true}), undefined,
    ctx.signal);
  const groups = new Map(), views = new Map(d.views.map(v => [v.address, v.dataplanes]));
  let lines = 0, end = {};
  for (const line of (await reply.text()).split('\n').filter(Boolean)) {
    const record = JSON.parse(line);
    if (record.end) {
      end = record.end;
      continue;
    }
    const q = record.entry || parse(record.line);
    lines++;
    if (!q || q.rcode === 'NOERROR' && !q.dropped && q.source !== 'refused') continue;
    q.address = (q.client || '').replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
    const id = [q.address, q.netns || '', q.name, q.type, q.rcode].join('\n');
    const g = groups.get(id) || {...q, id, number: 0};
    groups.set(id, Object.assign(g, {number: g.number + 1, time: q.time}));
  }
  const rows = [...groups.values()].sort((a, b) => b.time.localeCompare(a.time));
  return panel('Failed queries of the last hour', null, h('p', {class: 'quiet'},
    `${plural(lines, 'logged query', 'logged queries')}${d.queryLog.sample > 1
    ? `, one in ${d.queryLog.sample}` : ''}. `, end.more ? 'There may be more. ' : ''), table([
    {title: 'Last', value: q => q.time, cell: q => when(q.time)},
      {title: 'Client', value: q => q.address, cell: q => client(q, views)},
    {title: 'Name', value: q => q.name, cell: q => h('a', {href: link('dns', {ask: q.name})}, name(q.name))},
      {title: 'Type', cell: q => q.type},
    {title: 'Answer', value: q => q.rcode, cell: q => [badge(q.rcode === 'NOERROR' ? 'warn' : 'bad', q.rcode),
      q.source === 'refused' ? ' refused' : '',
      q.dropped ? ` without addresses: ${q.dropped}` : '']},
    {title: 'Queries', class: 'number', value: q => q.number, cell: q => count(q.number)},
  ], rows, {key: q => q.id, empty: h('p', {class: 'quiet'}, lines ? 'Every query was answered.'
    : 'No query was logged.')}));
}

function parse(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

// The address of a client without its port, and the dataplanes that have it.
function client(q, views) {
  const of = views.get(q.address);
  return [name(q.address, 60), of ? h('span', {class: 'quiet'}, ' ', of.slice(0, 3).map((d, i) => {
    const [mesh, ...rest] = d.split('/');
    return [i ? ', ' : '', h('a', {href: link('proxy', {mesh, name: rest.join('/')})}, name(d, 60))];
  }), of.length > 3 ? ` and ${of.length - 3} more` : '') : null];
}
