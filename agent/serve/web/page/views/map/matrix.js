// The matrix of the map: clients in rows, destinations in columns.

import {h, name, visible} from '../../core/dom.js';
import {plural} from '../../core/format.js';
import {describe, kindOf} from './graph.js';

const SIGN = {allowed: '●', partly: '◐', denied: '✕', idle: '○'};

/** Returns the matrix: a grid (ARIA APG) with arrow keys. Options are those of the graph. */
export function matrix(model, {selection, choose, href}) {
  const from = model.nodes.filter(n => model.links.some(l => l.from === n.id));
  const to = model.nodes.filter(n => model.links.some(l => l.to === n.id));
  const links = new Map(model.links.map(l => [l.id, l]));
  const at = {row: 0, column: 0};
  from.forEach((a, r) => to.forEach((b, c) => {
    if (selection.from === a.id && selection.to === b.id) Object.assign(at, {row: r, column: c});
  }));
  const head = h('tr', null, h('th', {scope: 'col', class: 'corner'}, h('span', {class: 'unseen'}, 'Client')),
    to.map(n => h('th', {scope: 'col', title: title(n)}, h('span', null, name(n.label, 24)))));
  const rows = from.map((a, r) => h('tr', null, h('th', {scope: 'row', title: title(a)},
    name(a.label, 24)), to.map((b, c) => {
    const l = links.get(`${a.id}\n${b.id}`);
    const stop = r === at.row && c === at.column;
    const chosen = selection.from === a.id && selection.to === b.id;
    if (!l) {
      return h('td', {role: 'gridcell', tabindex: stop ? 0 : -1, 'aria-label': `${short(a)} to ${short(b)}: no edge`});
    }
    const label = `${short(a)} to ${short(b)}: ${describe(l)}`;
    return h('td', {role: 'gridcell', class: `${kindOf(l)}${l.requests ? ' busy' : ''}${chosen ? ' selected' : ''}`},
      h('a', {href: href({from: a.id, to: b.id}), tabindex: stop ? 0 : -1, title: label, 'aria-label': label,
        'data-key': l.id, 'aria-current': chosen ? 'true' : null, onclick: e => {
          if (e.ctrlKey || e.metaKey || e.shiftKey) return;
          e.preventDefault();
          choose({from: a.id, to: b.id});
        }}, SIGN[kindOf(l)]));
  })));
  const table = h('table', {role: 'grid', class: 'matrix', 'aria-label':
    `Matrix of ${plural(from.length, 'client')} and ${plural(to.length, 'destination')}. The arrow keys move.`,
  onkeydown: move}, h('thead', null, head), h('tbody', null, rows));
  return h('div', {class: 'matrix-area'}, h('div', {class: 'matrix-scroll'}, table),
    h('ul', {class: 'legend', 'aria-label': 'Meaning of the cells'},
      [['allowed', 'allowed'], ['partly', 'denied in part'], ['denied', 'denied'], ['idle', 'allowed, no outbound']]
        .map(([kind, text]) => h('li', null, sign(kind), ' ', text)),
      h('li', null, sign('allowed', ' busy'), ' with traffic'),
      h('li', {class: 'quiet'}, 'rows call columns')));
}

const sign = (kind, more = '') => h('span', {class: `sign ${kind}${more}`, 'aria-hidden': 'true'}, SIGN[kind]);

const title = n => visible([n.label, n.mesh].filter(Boolean).join(', mesh ').slice(0, 500));

const short = n => visible(n.label.slice(0, 100));

function move(e) {
  const cell = e.target.closest('td');
  if (!cell) return;
  const row = cell.parentElement, body = row.parentElement;
  const r = [...body.rows].indexOf(row), c = cell.cellIndex;
  const [dr, dc] = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
    Home: [0, 1 - c], End: [0, row.cells.length - 1 - c]}[e.key] || [];
  if (dr === undefined) return;
  e.preventDefault();
  const next = body.rows[r + dr]?.cells[c + dc];
  if (!next || next.tagName !== 'TD') return;
  const stop = td => td.querySelector('a') || td;
  stop(cell).tabIndex = -1;
  stop(next).tabIndex = 0;
  stop(next).focus();
}
