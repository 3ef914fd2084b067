// The list of proxies with their state.

import {get} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {plural} from '../core/format.js';
import {keep, link} from '../core/route.js';
import {empty, field, head, table, when} from '../core/widgets.js';
import {kindOfProxy, rank, state, STATES} from '../parts/proxy-state.js';

/** Renders the view. Parameters: `q` (part of a name), `mesh`, and `state`. */
export async function render(root, ctx) {
  let proxies = (await get('/v1/dataplanes', ctx.signal)).items;
  const chosen = {q: ctx.params.get('q') || '', mesh: ctx.params.get('mesh') || '', state: ctx.params.get('state') ||
    ''};
  const live = ctx.session.mode === 'agent';
  const body = h('div'), summary = h('p', {class: 'quiet'});
  const change = what => e => {
    chosen[what] = e.target.value;
    keep({[what]: chosen[what]});
    draw();
  };
  const search = h('input', {type: 'search', value: chosen.q, placeholder: 'part of a name', oninput: change('q')});
  const meshes = h('select', {onchange: change('mesh')});
  const states = h('select', {onchange: change('state')});

  function options(select, all, values, value) {
    const list = [...new Set([...values, value].filter(Boolean))];
    replace(select, h('option', {value: ''}, all), list.map(v => h('option', {value: v}, v)));
    select.value = value;
  }

  function draw() {
    const counts = new Map();
    if (live) for (const p of proxies) counts.set(p.state, (counts.get(p.state) || 0) + 1);
    const known = [...counts.keys()].sort((a, b) => rank(a) - rank(b));
    replace(summary, plural(proxies.length, 'proxy', 'proxies'), known.length ? ': ' : '',
      known.map((s, i) => [i ? ', ' : '', `${counts.get(s)} ${s}`]));
    options(meshes, 'All meshes', [...new Set(proxies.map(p => p.mesh).filter(Boolean))].sort(), chosen.mesh);
    options(states, 'All states', Object.keys(STATES).filter(s => counts.has(s)), chosen.state);
    const wanted = chosen.q.toLowerCase();
    const rows = proxies.filter(p => (!chosen.mesh || p.mesh === chosen.mesh) &&
      (!chosen.state || p.state === chosen.state) &&
      (!wanted || `${p.mesh}/${p.name}`.toLowerCase().includes(wanted)))
      .sort((a, b) => rank(a.state) - rank(b.state));
    if (!proxies.length) {
      return replace(body, empty('There is no proxy yet. Add a Dataplane, then start its Envoy:',
        'nearside bootstrap --name NAME', h('p', null, h('a', {href: link('change')}, 'Add a Dataplane'))));
    }
    if (!rows.length) {
      return replace(body, empty('No proxy fits the search.', h('button', {type: 'button', onclick: () => {
        Object.assign(chosen, {q: '', mesh: '', state: ''});
        search.value = '';
        keep(chosen);
        draw();
        search.focus();
      }}, 'Show all proxies')));
    }
    refresh(body, table([
      {title: 'Proxy', value: p => p.name, cell: p => [h('a', {href: address(p), dataset: {key: `a:${id(p)}`}},
        name(p.name, 60)),
        kindOfProxy(p) === 'Dataplane' ? null : h('span', {class: 'quiet'}, ` ${kindOfProxy(p)}`)]},
      {title: 'Mesh', value: p => p.mesh, cell: p => name(p.mesh || '–', 40)},
      live && {title: 'State', value: p => rank(p.state), cell: p => state(p.state)},
      live && {title: 'Client', value: client, cell: p => client(p) || '–'},
      live && {title: 'Connected', value: p => p.clients[0]?.streams ? -Date.parse(p.clients[0].connectedAt) : 0,
        cell: p => p.clients[0]?.streams ? when(p.clients[0].connectedAt) : '–'},
      live && {title: 'Node', value: p => p.node || '', cell: p => p.node ? name(p.node, 40) : 'this one'},
      {title: live ? 'Reason' : 'Problems', cell: p => reason(p, live)},
    ].filter(Boolean), rows, {caption: rows.length === proxies.length ? ''
      : `${plural(rows.length, 'proxy', 'proxies')} of ${proxies.length}`,
      key: id}));
  }

  root.append(head('Proxies', ''), summary, h('div', {class: 'panel'},
    h('div', {class: 'row filters'}, field('Search', search),
    field('Mesh', meshes), live ? field('State', states) : null), body));
  draw();
  ctx.live(['proxy', 'ack', 'nack', 'problem', 'change'], async () => {
    proxies = (await get('/v1/dataplanes', ctx.signal)).items;
    draw();
  });
}

const id = p => `${kindOfProxy(p)}/${p.mesh}/${p.name}`;

const address = p => kindOfProxy(p) === 'Dataplane' ? link('proxy', {mesh: p.mesh, name: p.name})
  : link('proxy', {kind: kindOfProxy(p), name: p.name});

function client(p) {
  const c = p.clients.find(c => c.streams) || p.clients[0];
  return c ? [c.userAgent || c.flavor, c.version].filter(Boolean).join(' ') : '';
}

function reason(p, live) {
  const problems = p.problems.map(x => x.reason).filter(r => r !== p.reason);
  const text = [live && p.reason, ...problems].filter(Boolean);
  if (!text.length) return '–';
  return [name(text[0], 160), text.length > 1 ? h('span', {class: 'quiet'}, ` and ${text.length - 1} more`) : null];
}
