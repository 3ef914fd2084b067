// The map: which services may talk, which policy decides, and what goes over each edge.

import {get, query} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {count, plural, utc} from '../core/format.js';
import {keep, link} from '../core/route.js';
import {command, empty, failure, field, head, panel, say, when} from '../core/widgets.js';
import {details, edgeTable, refusals} from './map/details.js';
import {graph} from './map/graph.js';
import {matrix} from './map/matrix.js';
import {FILTERS, MOST_NODES, bestGrouping, build, groupings, membersOf} from './map/model.js';

/** The most edges that are read for the whole map. Those of one service are always read. */
const MOST_EDGES = 20000;
const PAGE = 5000;
const MODES = [['both', 'Graph and matrix'], ['graph', 'Graph'], ['matrix', 'Matrix'], ['list', 'List']];

// The last answer, so that a change of the selection or of the address shows at once.
let last = null;

/** Renders the view. */
export async function render(root, ctx) {
  const state = Object.fromEntries(['mesh', 'group', 'inside', 'focus', 'q', 'show', 'mode', 'node', 'from', 'to']
    .map(k => [k, ctx.params.get(k) || '']));
  const status = h('p', {class: 'quiet', role: 'status'});
  const controls = h('div', {class: 'row map-controls'});
  const area = h('div'), about = h('div'), refused = h('div');
  replace(root, head('Map', 'Services, and which of them may call which. It needs no traffic.',
    h('button', {type: 'button', onclick: () => load()}, 'Read again')), controls, status, area, about, refused);
  const scope = () => `${state.mesh}\n${state.focus}`;

  let drawStatus = null;
  async function load() {
    const mine = scope();
    try {
      const found = await read(state, ctx.signal, n => replace(status, `Read ${count(n)} edges…`));
      if (mine !== scope() || ctx.signal.aborted) return;
      const same = last?.scope === mine && area.firstChild && equal(last, found);
      last = {...found, scope: mine, time: new Date().toISOString()};
      if (same) drawStatus();
      else draw();
    } catch (err) {
      if (err.name === 'AbortError') return;
      if (last?.scope === mine) replace(status, failure(err, load));
      else replace(area, failure(err, load));
    }
  }

  // Changes the state in place: an address that can be shared, without rendering the view again.
  function set(changes, read) {
    Object.assign(state, changes);
    keep(state);
    if (read) {
      if (last?.scope !== scope()) replace(status, 'Reading the edges…');
      load();
    } else draw();
  }

  const href = changes => link('map', {...state, node: '', from: '', to: '', ...changes});
  const choose = async selection => {
    set({node: '', from: '', to: '', ...selection});
    await drawn;
    document.getElementById('details')?.scrollIntoView({block: 'nearest'});
    say(document.querySelector('#details h2')?.textContent || '');
  };

  let drawn = null; // a promise of the details of the selection
  let refusedOf = null; // the answer whose refusals are shown
  let grouped = null; // the ways to group the services of an answer
  let built = null; // the model, which a change of the selection does not change
  function draw() {
    const {services, edges} = last;
    if (grouped?.data !== last) grouped = {data: last, list: groupings(services)};
    const groups = grouped.list;
    const chosen = state.group || bestGrouping(services, groups);
    const grouping = groups.find(g => g.id === chosen) || null;
    const part = JSON.stringify([chosen, state.q, state.inside, state.focus, state.show]);
    if (built?.data !== last || built.part !== part) {
      built = {data: last, part, model: build({services, edges, grouping, search: state.q, inside: state.inside,
        focus: state.focus, show: state.show})};
    }
    const {model} = built;
    const wide = model.nodes.length <= 30 && innerWidth >= 1200;
    const mode = state.mode || (innerWidth < 760 ? 'list' : wide ? 'both' : 'graph');
    drawControls(controls, {state, services, groups, chosen, mode, set});
    drawStatus = () => replace(status, sentence(last, model, state), ' ', crumbs(state, services, grouping, href));
    drawStatus();
    if (!services.length) {
      refresh(area, nothing(ctx, state));
      drawn = refusedOf = null;
      replace(about);
      replace(refused);
      return;
    }
    const selection = state.from ? {from: state.from, to: state.to} : {node: state.node};
    const options = {selection, choose, href, services};
    const parts = [];
    const some = model.links.length > 0;
    if (model.nodes.length && (mode === 'graph' || mode === 'both')) {
      parts.push(panel('Graph', null, graph(model, options)));
    }
    if (some && (mode === 'matrix' || mode === 'both')) parts.push(panel('Matrix', null, matrix(model, options)));
    if (some && mode === 'list') {
      parts.push(panel('Edges', null, edgeTable(model.links.flatMap(l => l.edges), services, options)));
    }
    const scrolled = [...area.querySelectorAll('.graph-scroll, .matrix-scroll')]
      .map(e => [e.className, e.scrollLeft, e.scrollTop]);
    refresh(area, some ? null : h('div', {class: 'filters'}, noEdges(state, set, last.unlisted)),
      h('div', {class: mode === 'both' && some ? 'map-both' : ''}, parts));
    for (const [part, left, top] of scrolled) area.querySelector(`.${part}`)?.scrollTo(left, top);
    const mine = drawn = new Promise(done => setTimeout(done)).then(() => { // another task: the graph shows first
      if (mine !== drawn || ctx.signal.aborted) return;
      refresh(about, details(model, {...options, close: () => set({node: '', from: '', to: ''})}));
    });
    if (refusedOf === last) return;
    refusedOf = last;
    refresh(refused, panel('Refused connections of the last hour', null, refusals(last.refused, services),
      h('p', {class: 'hint'}, counters(last.counters))));
  }

  if (last?.scope === scope()) draw();
  else replace(area, h('p', {class: 'quiet'}, 'Reading the services and their edges…'));

  await load();
  ctx.live(['change', 'proxy'], load);
}

/** Reports whether two answers show the same. Answers of many edges are taken as different. */
const equal = (a, b) => a.edges.length === b.edges.length && a.edges.length <= PAGE &&
  ['edges', 'services', 'refused', 'counters'].every(k => JSON.stringify(a[k]) === JSON.stringify(b[k]));

/** Reads the services and edges: all of a mesh up to a limit, or those of one service. */
async function read(state, signal, progress) {
  const out = {services: [], edges: [], refused: [], counters: null, total: 0, missing: 0, unlisted: 0,
    moreServices: 0};
  const pages = async (values, most) => {
    let next = query('/v1/edges', {size: PAGE, ...values}), first = true, total = 0, n = 0;
    while (next && n < most) {
      const page = await get(next, signal);
      if (first && page.services?.length) Object.assign(out, {services: page.services, refused: page.refused || [],
        counters: page.counters, moreServices: page.moreServices || 0});
      first = false;
      out.edges.push(...page.edges);
      n += page.edges.length;
      total = page.total;
      next = page.next;
      if (next) progress(out.edges.length);
    }
    out.total += total;
    out.missing += Math.max(0, total - n);
  };
  await pages({mesh: state.mesh}, 1);
  if (out.missing && !state.focus) { // the rest, or only what somebody uses
    const all = out.total;
    const most = all > MOST_EDGES;
    Object.assign(out, {edges: [], total: 0, missing: 0});
    await pages({mesh: state.mesh, listed: most}, MOST_EDGES);
    if (most) out.unlisted = all - out.total;
  }
  if (out.missing && state.focus) {
    const [mesh, ...rest] = state.focus.split('/'), service = rest.join('/');
    Object.assign(out, {edges: [], total: 0, missing: 0});
    await pages({mesh, from: service}, MOST_EDGES);
    const own = out.edges.length;
    await pages({mesh, to: service}, MOST_EDGES);
    const twice = out.edges.findIndex((e, i) => i >= own && e.from === service && e.to === service);
    if (twice >= 0) out.edges.splice(twice, 1);
  }
  out.services.sort((a, b) => a.mesh < b.mesh ? -1 : a.mesh > b.mesh ? 1 : a.name < b.name ? -1 : 1);
  return out;
}

function drawControls(el, {state, services, groups, chosen, mode, set}) {
  const select = (label, id, value, options, change) => field(label, h('select', {id: `map-${id}`,
    onchange: e => change(e.target.value)},
  options.map(([v, text]) => h('option', {value: v, selected: v === value}, text))));
  const meshes = [...new Set([...services.map(s => s.mesh), state.mesh].filter(Boolean))].sort();
  const clear = {node: '', from: '', to: ''};
  let timer = 0;
  const search = h('input', {id: 'map-search', type: 'search', value: state.q, autocomplete: 'off', spellcheck: 'false',
    placeholder: 'Part of a name', oninput: e => {
      clearTimeout(timer);
      timer = setTimeout(() => set({...clear, q: e.target.value}), 200);
    }});
  const kinds = [...services.length <= MOST_NODES ? [['none', 'Services one by one']] : [],
    ...groups.map(g => [g.id, g.of ? `${g.title} (${g.size})` : g.title])];
  refresh(el, field('Search', search),
    meshes.length > 1 || state.mesh ? select('Mesh', 'mesh', state.mesh,
      [['', 'All meshes'], ...meshes.map(m => [m, m.slice(0, 60)])],
      mesh => set({...clear, mesh, inside: '', focus: ''}, true)) : null,
    select('Group by', 'group', chosen, kinds,
      group => set({...clear, group, inside: '', focus: ''}, Boolean(state.focus))),
    select('Show', 'show', state.show, FILTERS, show => set({...clear, show})),
    select('As', 'mode', mode, MODES, m => set({mode: m})));
}

function sentence(data, model, state) {
  const words = [`${plural(data.services.length + data.moreServices, 'service')}, ${plural(data.total, 'edge')}`];
  if (state.q || state.inside || state.focus) words.push(`, shown: ${plural(model.matches, 'service')}`);
  const out = [h('span', null, words.join('')), ' · read ', when(data.time), '.'];
  if (data.unlisted) {
    out.push(' ', h('strong', null, `${count(data.total + data.unlisted)} pairs may talk.`), ' The map has those ' +
      'that a dataplane names or that had traffic. Choose a service for all of its pairs.');
  }
  if (data.missing) {
    out.push(' ', h('strong', {class: 'warn'}, `Not read, because too many: ${plural(data.missing, 'edge')}.`),
      ' Choose a mesh or a service: then the map has all of its edges.');
  }
  if (data.moreServices) {
    out.push(' ', h('strong', {class: 'warn'}, `Left out: ${plural(data.moreServices, 'service')}.`));
  }
  return out;
}

/** Says which part of the map is shown, and leads back. */
function crumbs(state, services, grouping, href) {
  if (!state.inside && !state.focus) return null;
  const what = state.focus ? ['the neighbors of ', name(state.focus.split('/').slice(1).join('/'), 48)]
    : ['the ', plural(membersOf(state.inside, services, grouping)?.length || 0, 'service'), ' of ',
      name(state.inside.replace(/^[a-z]+:/, '').replace('|', ' … '), 48)];
  return h('span', null, 'Only ', what, '. ', h('a', {href: href({inside: '', focus: ''})}, 'Show the whole map'));
}

function nothing(ctx, state) {
  if (state.mesh) {
    return empty(`There is no service in mesh ${state.mesh.slice(0, 80)}.`,
      h('p', null, h('a', {href: link('map')}, 'Show all meshes')));
  }
  return empty('There are no services yet. A service exists when a Dataplane has an inbound for it.',
    ctx.session.write ? h('p', null, h('a', {href: link('change')}, 'Create a Dataplane'))
      : 'nearside apply -f dataplane.yaml');
}

function noEdges(state, set, unlisted) {
  if (unlisted && !state.q && !state.show && !state.inside) {
    return empty('Almost every service may call every other one, and no pair is named by a dataplane or had traffic. ' +
      'Search a service, and choose its neighbors. To limit what proxies get, set reachableBackends.',
    'nearside reachable suggest --dataplane NAME');
  }
  if (state.q || state.show || state.inside || state.focus) {
    return empty('No edge matches the search and the filters.', h('p', null, h('button', {type: 'button', onclick: () =>
      set({q: '', show: '', inside: '', focus: '', node: '', from: '', to: ''}, Boolean(state.focus))}, 'Show all')));
  }
  return empty('No service has an outbound to another one, or tries to call one. Add outbounds or reachableBackends ' +
    'to a Dataplane, or use transparent proxying.');
}

function counters(c) {
  if (!c) return '';
  const since = c.since ? `Requests are counted since ${utc(c.since)}, by the Envoys of this node.`
    : 'No Envoy of this node reports counters, so the edges show no requests.';
  return c.complete || !c.why ? since : [since, ' Incomplete: ', c.why, ' ', command('nearside status')];
}
