// Members: the nodes of the pool on a map of zones, with lag, clocks, signers, and conflicts.

import {get, query} from '../core/api.js';
import {h, name, refresh, replace, visible} from '../core/dom.js';
import {count, duration, plural} from '../core/format.js';
import {keep, link} from '../core/route.js';
import {badge, command, empty, failure, field, head, panel, table, when} from '../core/widgets.js';
import {conflicts} from '../parts/conflicts.js';

const MOST_CHIPS = 48; // of a zone
const CLOCK = 1; // seconds by which clocks may differ before the page warns
const LAG = 10; // seconds for which a node may differ

let last = null; // so that a change of the address shows at once

/** Renders the view. */
export async function render(root, ctx) {
  const state = Object.fromEntries(['zone', 'q', 'only', 'node', 'all'].map(k => [k, ctx.params.get(k) || '']));
  const status = h('p', {class: 'quiet', role: 'status'});
  const controls = h('div', {class: 'row filters'});
  const zones = h('div'), about = h('div'), list = h('div'), lost = h('div');
  replace(root, head('Members', 'The nodes of the pool, as this node sees them.',
    h('button', {type: 'button', onclick: () => load()}, 'Read again')), status, controls, zones, about, list, lost);
  const set = changes => {
    Object.assign(state, changes);
    keep(state);
    draw();
  };
  const href = changes => link('members', {...state, ...changes});

  async function load() {
    try {
      last = await read(state, ctx.signal);
      draw();
    } catch (err) {
      if (err.name !== 'AbortError') replace(status, failure(err, load));
    }
  }

  function draw() {
    const nodes = last.nodes;
    replace(status, nodes.length ? sentence(last) : null);
    if (!nodes.length || nodes.length === 1 && !last.pool) {
      replace(controls);
      replace(about);
      refresh(zones, alone());
      refresh(list, nodes.length ? panel('This node', null, nodeTable(nodes, href)) : null);
      return refresh(lost, conflicts(last.conflicts, {ctx, all: state.all, set, load, pool: false}));
    }
    drawControls(controls, state, nodes, set);
    const text = state.q.trim().toLowerCase();
    const shown = nodes.filter(n => (!state.zone || n.zone === state.zone) && (!state.only || troubles(n).length) &&
      (!text || [n.name, n.address, n.zone, n.id, n.signer].some(v => String(v || '').toLowerCase().includes(text))));
    refresh(zones, zoneMap(shown, state, href, set));
    const chosen = nodes.find(n => n.name === state.node);
    refresh(about, chosen ? details(chosen, () => set({node: ''})) : null);
    const all = h('button', {type: 'button', class: 'plain', onclick: () => set({q: '', zone: '', only: ''})},
      'Show all nodes');
    refresh(list, panel('Nodes', null, nodeTable(shown, href, h('p', {class: 'quiet'}, 'No node matches. ', all))));
    refresh(lost, conflicts(last.conflicts, {ctx, all: state.all, set: changes => {
      set(changes);
      load();
    }, load, pool: true}));
  }

  if (last) draw();
  else replace(status, 'Asking the nodes of the pool…');
  ctx.live(['problem', 'proxy', 'change'], load, 15000);
  let timer = setInterval(() => document.hidden || load(), 30000);
  ctx.atEnd(() => clearInterval(timer));
  await load();
}

/** Reads the pool, the members with their files, and the conflicts. */
async function read(state, signal) {
  const optional = path => get(path, signal).catch(err => {
    if (err.name === 'AbortError' || ![403, 404, 409, 503].includes(err.status)) throw err;
    return {error: err, items: []};
  });
  const [pool, members, lost] = await Promise.all([optional('/v1/pool'), get('/v1/members', signal),
    optional(query('/v1/conflicts', {allNodes: state.all}))]);
  const known = new Map(members.items.map(m => [m.name, m]));
  const nodes = (pool.nodes || members.items.map(m => ({...m, clock: m.ahead, proxies: null, problems: null})))
    .map(n => ({...known.get(n.name), ...n}));
  return {nodes, conflicts: lost, pool: members.items.length > 0, time: pool.time || new Date().toISOString()};
}

/** Returns what is wrong with a node, in words, each with a state. */
function troubles(n) {
  const out = [];
  if (n.state === 'dead') out.push(['bad', n.agentLost ? 'its agent does not answer' : 'dead']);
  if (n.state === 'refused') out.push(['bad', 'refused']);
  if (n.error && n.state === 'alive') out.push(['warn', 'no report']);
  if (n.incompatible) out.push(['bad', 'incompatible version']);
  if (n.lag > LAG && n.state === 'alive') out.push(['warn', `behind for ${duration(n.lag)}`]);
  if (Math.abs(n.clock || 0) > CLOCK) {
    out.push(['warn', `clock ${n.clock > 0 ? 'ahead' : 'behind'} by ${duration(n.clock)}`]);
  }
  if (n.packetsLost) out.push(['warn', 'no UDP']);
  if (n.problems) out.push(['warn', plural(n.problems, 'problem')]);
  if (n.conflicts) out.push(['warn', plural(n.conflicts, 'conflict')]);
  return out;
}

const more = n => troubles(n).filter(t => t[1] !== n.state);

const worst = n => {
  const states = troubles(n).map(t => t[0]);
  return states.includes('bad') ? 'bad' : states.length ? 'warn' : n.state === 'left' ? 'off' : 'ok';
};

function sentence(data) {
  const bad = data.nodes.filter(n => ['bad', 'warn'].includes(worst(n))).length;
  const alive = data.nodes.filter(n => n.state === 'alive' || n.self).length;
  return [plural(data.nodes.length, 'node'), `, ${count(alive)} alive. `, data.nodes.length ? bad
    ? h('strong', {class: 'warn'}, `${plural(bad, 'node')} ${bad === 1 ? 'needs' : 'need'} attention.`)
    : 'None needs attention.' : '', ' Asked ', when(data.time), '.'];
}

function alone() {
  return empty('This node is in no pool: it has only the resources of its own files and API. To share resources with ' +
    'other nodes, set gossip.bind and gossip.keyringFile, and join a member.', 'nearside join HOST:PORT',
  h('p', null, 'Steps: docs/gossip.md, “Set up a pool”.'));
}

function drawControls(el, state, nodes, set) {
  const zones = [...new Set(nodes.map(n => n.zone))].sort();
  let timer = 0;
  refresh(el, field('Search', h('input', {id: 'members-search', type: 'search', value: state.q, autocomplete: 'off',
    placeholder: 'Name, address, zone, or key', oninput: e => {
      clearTimeout(timer);
      timer = setTimeout(() => set({q: e.target.value}), 150);
    }})),
  field('Zone', h('select', {id: 'members-zone', onchange: e => set({zone: e.target.value})},
    [['', 'All zones'], ...zones.map(z => [z, z.slice(0, 60)])].map(([v, text]) =>
      h('option', {value: v, selected: v === state.zone}, text)))),
  field('Show', h('select', {id: 'members-only', onchange: e => set({only: e.target.value})},
    [['', 'All nodes'], ['1', 'Nodes that need attention']].map(([v, text]) =>
      h('option', {value: v, selected: v === state.only}, text)))));
}

/** Returns one box for each zone, with its nodes. */
function zoneMap(nodes, state, href, set) {
  const zones = new Map();
  for (const n of nodes) zones.set(n.zone, [...zones.get(n.zone) || [], n]);
  const order = {bad: 0, warn: 1, ok: 2, off: 3};
  const shown = [...zones].sort((a, b) => a[0] < b[0] ? -1 : 1).slice(0, 60);
  return h('div', {class: 'grid zones'}, shown.map(([zone, list]) => {
    const sorted = [...list].sort((a, b) => order[worst(a)] - order[worst(b)] || (a.name < b.name ? -1 : 1));
    const trouble = list.filter(n => ['bad', 'warn'].includes(worst(n))).length;
    const proxies = list.reduce((sum, n) => sum + (n.proxies || 0), 0);
    return panel(name(zone || '(no zone)', 48), null,
      h('p', {class: 'quiet'}, plural(list.length, 'node'), proxies ? `, ${plural(proxies, 'proxy', 'proxies')}` : '',
        trouble ? [', ', h('span', {class: 'warn'}, `${count(trouble)} with problems`)] : ''),
      h('ul', {class: 'chips'}, sorted.slice(0, MOST_CHIPS).map(n => chip(n, state, href, set)),
        sorted.length > MOST_CHIPS ? h('li', null, h('a', {href: href({zone})},
          `and ${sorted.length - MOST_CHIPS} more`)) : null));
  }));
}

const SIGN = {ok: '●', warn: '▲', bad: '■', off: '○'};

function chip(n, state, href, set) {
  const s = worst(n), words = troubles(n).map(t => t[1]).join(', ') || n.state;
  return h('li', null, h('a', {href: href({node: n.name}), class: `chip ${s}`, 'data-key': `chip-${n.name}`,
    title: visible(`${n.name.slice(0, 200)}: ${words}`), 'aria-current': n.name === state.node ? 'true' : null,
    'aria-label': visible(`${n.name.slice(0, 100)}: ${words}`), onclick: e => {
      if (e.ctrlKey || e.metaKey || e.shiftKey) return;
      e.preventDefault();
      set({node: n.name});
      document.getElementById('node')?.scrollIntoView({block: 'nearest'});
    }}, h('span', {class: 'sign', 'aria-hidden': 'true'}, SIGN[s]), name(n.name, 24)));
}

function nodeTable(nodes, href, nothing) {
  const known = v => v === null || v === undefined ? h('span', {class: 'quiet'}, 'unknown') : count(v);
  return table([
    {title: 'Node', value: n => n.name, cell: n => h('a', {href: href({node: n.name})}, name(n.name, 48))},
    {title: 'Zone', value: n => n.zone, cell: n => name(n.zone, 30)},
    {title: 'State', value: n => worst(n) + n.state, cell: n => h('span', {class: 'row tight'},
      badge(worst(n), n.self ? 'this node' : n.state || 'unknown'),
      more(n).slice(0, 4).map(t => badge(t[0], t[1])))},
    {title: 'Lag', class: 'number', value: n => n.lag || 0, cell: n => n.lag ? duration(n.lag) : 'none'},
    {title: 'Clock', class: 'number', value: n => Math.abs(n.clock || 0), cell: n => clock(n)},
    {title: 'Proxies', class: 'number', value: n => n.proxies ?? -1, cell: n => known(n.proxies)},
    {title: 'Problems', class: 'number', value: n => n.problems ?? -1, cell: n => known(n.problems)},
    {title: 'Version', value: n => n.version, cell: n => name(n.version, 24)},
    {title: 'Signer', value: n => n.signer || n.id, cell: n => signer(n)},
  ], nodes, {key: n => n.name, empty: nothing});
}

const clock = n => n.self ? 'reference' : Math.abs(n.clock || 0) < 0.05 ? 'equal'
  : `${n.clock > 0 ? '+' : '−'}${duration(n.clock)}`;

const signer = n => n.signer || n.signed ? h('code', null, name(n.signer || n.id, 16))
  : h('span', {class: 'warn'}, 'no key');

function details(n, close) {
  const row = (title, ...value) => [h('dt', null, title), h('dd', null, value)];
  return panel(name(n.name, 120), {id: 'node'},
    h('p', {class: 'row'}, badge(worst(n), n.self ? 'this node' : n.state || 'unknown'),
      more(n).map(t => badge(t[0], t[1])), h('button', {type: 'button', class: 'plain', onclick: close}, 'Close')),
    n.error || n.reason ? h('p', {class: 'notice warn'}, h('span', null, name(n.error || n.reason, 500))) : null,
    h('dl', null, row('Zone', name(n.zone)), row('Address', name(n.address || 'unknown')),
      row('Version', name(n.version || 'unknown')), row('State since', n.since ? when(n.since) : 'unknown'),
      row('Resources', n.self ? 'the reference of this page' : n.inSync === false || n.lag
        ? `differ from those of this node for ${duration(n.lag || 0)}` : 'the same as on this node',
      n.revision ? [' (revision ', h('code', null, name(n.revision, 20)), ')'] : ''),
      row('Clock', clock(n), Math.abs(n.clock || 0) > CLOCK
        ? ': synchronize it, because the later of two writes wins' : ''),
      row('Key', signer(n), n.signed || n.signer ? '' : ': its agent is of a release without keys'),
      n.packetsLost ? row('Transport', 'TCP only: a firewall drops UDP to its gossip port') : null),
    remedies(n), files(n.files));
}

/** Returns what to do about a node. */
function remedies(n) {
  const steps = [];
  if (n.state === 'dead') {
    steps.push(['See why its agent does not run (on that node):', 'journalctl -u nearside -n 50'],
      ['If the node will not return, remove it and its resources:', `nearside forget ${n.name}`]);
  }
  if (n.state === 'refused') steps.push(['See why this node refuses it:', 'nearside check']);
  if (n.lag > LAG && n.state === 'alive') steps.push(['Look at the state of both nodes:', 'nearside members -o wide']);
  if (n.problems) steps.push(['See its problems (on that node):', 'nearside status']);
  if (n.conflicts) steps.push(['See its conflicts:', 'nearside conflicts --all-nodes']);
  const items = steps.map(([text, c]) => h('li', null, text, ' ', command(c)));
  return items.length ? h('ul', {class: 'steps'}, items) : null;
}

const FILE = {differs: 'differs', missingHere: 'missing on this node', missingThere: 'missing on that node'};

function files(f) {
  if (!f?.total) return null;
  return h('details', null, h('summary', null, `${plural(f.total, 'resource')} in files differ`),
    table([{title: 'Resource', cell: x => name([x.type, x.mesh, x.name].filter(Boolean).join('/'))},
      {title: 'State', cell: x => FILE[x.state] || x.state}], f.items));
}
