// The graph of the map as SVG. The matrix and the list have the same information.

import {h, svg, visible} from '../../core/dom.js';
import {count, plural} from '../../core/format.js';
import {NODE, layout} from './layout.js';
import {permissionOf, weightOf} from './model.js';

/** The most links that are drawn. */
const MOST_LINKS = 300;
const MOST_CHORDS = 120; // of a ring

const MARGIN = 12;

/**
 * Returns the graph. `selection` is `{node}`, `{from, to}`, or empty. `choose(selection)` is called by
 * a click, and `href(selection)` gives its address.
 */
export function graph(model, {selection, choose, href}) {
  const sorted = [...model.links].sort((a, b) => weightOf(b) - weightOf(a));
  const {places, width, height, ring} = layout(model.nodes, model.links.filter(l => l.from !== l.to),
    {middle: model.middle});
  const touches = l => selection.node && (l.from === selection.node || l.to === selection.node) ||
    l.from === selection.from && l.to === selection.to;
  const drawn = sorted.filter((l, i) => i < (ring ? MOST_CHORDS : MOST_LINKS) || touches(l));
  const loops = new Map(drawn.filter(l => l.from === l.to).map(l => [l.from, l]));
  const near = neighborhood(model, selection);
  const most = Math.max(1, ...drawn.map(l => l.requests));
  const lines = drawn.filter(l => l.from !== l.to).map(l => (ring ? chord : line)(l, places, {
    ring, most, faded: near && !near.links.has(l.id), choose,
    selected: selection.from === l.from && selection.to === l.to}));
  lines.sort((a, b) => Number(a.classList.contains('faded')) - Number(b.classList.contains('faded')));
  const tabStop = selection.node && places.has(selection.node) ? selection.node : model.nodes[0]?.id;
  const boxes = model.nodes.map(n => (ring ? spoke : box)(n, places.get(n.id), {
    loop: loops.get(n.id), faded: near && !near.nodes.has(n.id), selected: selection.node === n.id, choose,
    href: href({node: n.id}), tabStop: n.id === tabStop, links: model.links}));
  const picture = svg('svg', {class: 'graph', width: width + 2 * MARGIN, height: height + 2 * MARGIN,
    viewBox: `${-MARGIN} ${-MARGIN} ${width + 2 * MARGIN} ${height + 2 * MARGIN}`, role: 'group',
    'aria-label': `Graph of ${plural(model.nodes.length, 'node')} and ${plural(model.links.length, 'connection')}. ` +
      'The arrow keys move between nodes. The list has the same information.',
    onkeydown: e => move(e, model.nodes, places)},
  svg('defs', null, ['allowed', 'partly', 'denied', 'idle'].map(marker)), lines, boxes);
  Object.assign(picture.style, {width: '100%', height: 'auto', maxWidth: `${width + 2 * MARGIN}px`,
    minWidth: `${0.7 * (width + 2 * MARGIN)}px`});
  const omitted = model.links.length - drawn.length;
  return h('div', {class: 'graph-area'}, h('div', {class: 'graph-scroll'}, picture), legend(),
    omitted > 0 ? h('p', {class: 'hint'}, `Not drawn: the ${plural(omitted, 'connection')} with the least traffic. ` +
      'The matrix and the list have all.') : null);
}

/** Returns the nodes and links that stay bright while something is selected, or null. */
function neighborhood(model, {node, from, to}) {
  if (!node && !from) return null;
  const links = model.links.filter(l => node ? l.from === node || l.to === node : l.from === from && l.to === to);
  if (node && !model.nodes.some(n => n.id === node)) return null;
  return {links: new Set(links.map(l => l.id)), nodes: new Set([node, ...links.flatMap(l => [l.from, l.to])])};
}

const marker = kind => svg('marker', {id: `arrow-${kind}`, class: `arrow ${kind}`, viewBox: '0 0 8 8', refX: 7, refY: 4,
  markerWidth: 8, markerHeight: 8, markerUnits: 'userSpaceOnUse', orient: 'auto'}, svg('path', {d: 'M0 0L8 4L0 8z'}));

/** Returns the class of a link: its permission, or idle if nothing can go over it. */
export const kindOf = l => permissionOf(l) === 'allowed' && !l.reach ? 'idle' : permissionOf(l);

function line(l, places, options) {
  const a = places.get(l.from), b = places.get(l.to);
  const forward = b.x > a.x;
  const x1 = forward ? a.x + NODE.width : a.x, y1 = a.y + NODE.height / 2;
  let x2 = forward ? b.x : b.x + NODE.width, y2 = b.y + NODE.height / 2;
  let d;
  if (a.x === b.x) { // in one column: an arc at the right
    x2 = b.x + NODE.width;
    const bend = 40 + Math.abs(b.y - a.y) / 10;
    d = `M${a.x + NODE.width} ${y1 - 5}C${a.x + NODE.width + bend} ${y1} ${x2 + bend} ${y2} ${x2} ${y2 + 5}`;
  } else {
    if (!forward) y2 += 6;
    const bend = Math.max(40, Math.abs(x2 - x1) * 0.45) * (forward ? 1 : -1);
    d = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  }
  return stroke(l, d, options);
}

function chord(l, places, options) {
  const a = places.get(l.from), b = places.get(l.to), center = mean(places);
  return stroke(l, `M${a.x} ${a.y}Q${center.x} ${center.y} ${b.x} ${b.y}`, options);
}

function mean(places) {
  const [first] = places.values();
  const radius = Math.max(...[...places.values()].map(p => Math.abs(p.y - first.y))) / 2;
  return {x: first.x, y: first.y + radius};
}

function stroke(l, d, {ring, most, faded, selected, choose}) {
  const kind = kindOf(l);
  const thick = l.requests ? 1.5 + (ring ? 1 : 2.5) * Math.log1p(l.requests) / Math.log1p(most) : 1.25;
  const states = [kind, l.requests && 'busy', faded && 'faded', selected && 'selected'].filter(Boolean).join(' ');
  return svg('g', {class: `link ${states}`, 'aria-hidden': 'true', onclick: () => choose({from: l.from, to: l.to})},
  svg('path', {class: 'hit', d}),
  svg('path', {class: 'stroke', d, 'stroke-width': thick.toFixed(2), 'marker-end': `url(#arrow-${kind})`}),
  svg('title', null, describe(l)));
}

/** Returns a link in words. */
export function describe(l) {
  const n = l.edges.length;
  const words = n === 1 ? [l.edges[0].permission + (l.reach ? '' : ', no outbound')]
    : [plural(n, 'pair'), l.denied + l.partly ? `${count(l.denied)} denied, ${count(l.partly)} in part`
      : 'all allowed'];
  if (l.requests) words.push(plural(l.requests, 'request'));
  if (l.failed) words.push(`${count(l.failed)} failed`);
  if (l.refused) words.push(`${count(l.refused)} refused`);
  return words.join(', ');
}

function box(n, p, options) {
  const s = n.single;
  return node(n, `translate(${p.x} ${p.y})`, options, note => [
    svg('rect', {width: NODE.width, height: NODE.height, rx: s && !s.gateway ? 5 : 12}),
    svg('text', {x: 10, y: 16, class: 'name'}, short(n.label)),
    svg('text', {x: 10, y: 30, class: 'note'}, note)]);
}

/** Draws a node of a ring: a dot with its name outside. */
function spoke(n, p, options) {
  const left = Math.cos(p.angle) < -0.001, turn = p.angle * 180 / Math.PI;
  return node(n, `translate(${p.x} ${p.y}) rotate(${turn})`, options, () => [
    svg('rect', {x: -5, y: -9, width: NODE.width, height: 18, rx: 9, class: 'ring'}),
    svg('circle', {r: 4.5, class: 'dot'}),
    svg('text', {x: left ? -12 : 12, y: 4, class: 'name', transform: left ? 'rotate(180)' : null,
      'text-anchor': left ? 'end' : null}, short(n.label))]);
}

function node(n, transform, {loop, faded, selected, choose, href, tabStop, links}, parts) {
  const s = n.single;
  const calls = links.filter(l => l.from === n.id).length, called = links.filter(l => l.to === n.id).length;
  const note = s ? (n.mesh ? `${short(n.mesh)} · ` : '') + stateOf(s) : plural(n.members.length, 'service') +
    (loop ? `, ${plural(loop.edges.length, 'edge')} inside` : '');
  const label = `${visible(n.label.slice(0, 200))}: ${note}; ${called} in, ${calls} out`;
  const states = ['node', !s && 'many', s?.outside && 'outside', faded && 'faded', selected && 'selected'];
  return svg('a', {class: states.filter(Boolean).join(' '), href, 'data-key': n.id, 'aria-label': label,
    tabindex: tabStop ? 0 : -1, 'aria-current': selected ? 'true' : null, transform, onclick: e => {
      if (e.ctrlKey || e.metaKey || e.shiftKey) return;
      e.preventDefault();
      choose({node: n.id});
    }},
  parts(note), svg('title', null, `${visible(n.label.slice(0, 500))}\n${note}`));
}

function stateOf(s) {
  if (s.outside) return 'outside the mesh';
  if (!s.dataplanes) return 'no dataplanes';
  const words = [s.gateway && 'gateway', plural(s.dataplanes, 'dataplane'), s.connected && `${s.connected} here`];
  return words.filter(Boolean).join(', ');
}

function short(text) {
  text = visible(text.slice(0, 300));
  return text.length <= 23 ? text : `${text.slice(0, 11)}…${text.slice(-11)}`;
}

/** Moves the focus to the nearest node in the direction of an arrow key. */
function move(e, nodes, places) {
  const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[e.key];
  const from = e.target.closest?.('.node');
  if (!way || !from) return;
  e.preventDefault();
  const p = places.get(from.dataset.key);
  let best = null, least = Infinity;
  for (const n of nodes) {
    const q = places.get(n.id), dx = q.x - p.x, dy = q.y - p.y;
    const along = dx * way[0] + dy * way[1], aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (along <= 0 || along + 3 * aside >= least) continue;
    least = along + 3 * aside;
    best = n;
  }
  if (!best) return;
  const next = [...e.currentTarget.querySelectorAll('.node')].find(x => x.dataset.key === best.id);
  from.setAttribute('tabindex', -1);
  next.setAttribute('tabindex', 0);
  next.focus();
}

/** Returns the meaning of the lines and cells. */
export function legend() {
  const sample = (kind, text) => h('li', null, svg('svg', {width: 34, height: 10, 'aria-hidden': 'true'},
    svg('g', {class: `link ${kind}`}, svg('path', {class: 'stroke', d: 'M1 5L33 5',
      'stroke-width': kind === 'allowed busy' ? 4 : 1.5}))), ' ', text);
  return h('ul', {class: 'legend', 'aria-label': 'Meaning of the lines'}, sample('allowed', 'allowed'),
    sample('allowed busy', 'with traffic'), sample('partly', 'denied in part'), sample('denied', 'denied'),
    sample('idle', 'allowed, no outbound'));
}
