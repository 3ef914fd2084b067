// What the Envoy of a proxy itself answers: clusters, statistics, and its access log.

import {query, raw, text} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {count, plural} from '../core/format.js';
import {current, keep} from '../core/route.js';
import {badge, empty, field, panel, table} from '../core/widgets.js';
import {paths} from './proxy-state.js';

const MOST_LINES = 500; // of a log on the page

/** Ends what a part does in the background. */
export function stop(part) {
  clearTimeout(part.timer);
  part.timer = 0;
  part.round = (part.round || 0) + 1;
}

function offline(el, err) {
  if (err.name === 'AbortError' || ![404, 503, 502].includes(err.status)) throw err;
  replace(el, empty(`The Envoy of this proxy does not answer here: ${err.message}`));
}

function searchBox(draw) {
  const box = h('input', {type: 'search', value: current().params.get('q') || '', placeholder: 'part of a name',
    oninput: () => {
    keep({q: box.value});
    draw();
  }});
  return box;
}

/** Renders Envoy's statistics. */
export async function stats(el, part) {
  let lines;
  try {
    lines = (await text(paths(part.proxy).resource + '/stats', part.ctx.signal)).split('\n').filter(Boolean);
  } catch (err) {
    return offline(el, err);
  }
  const all = lines.map(line => {
    const at = line.indexOf(': ');
    const value = line.slice(at + 2);
    return {name: line.slice(0, at), value: /^\d+$/.test(value) ? Number(value) : value};
  });
  const body = h('div');
  const draw = () => {
    const wanted = box.value.trim().toLowerCase();
    const rows = all.filter(s => (zeros.checked || s.value !== 0) && s.name.toLowerCase().includes(wanted));
    replace(body, table([
      {title: 'Statistic', value: s => s.name, cell: s => h('code', null, name(s.name, 160))},
      {title: 'Value', class: 'number', value: s => s.value, cell: s => typeof s.value === 'number' ? count(s.value)
        : name(s.value, 200)},
    ], rows, {caption: `${count(rows.length)} of ${plural(all.length, 'statistic')}`,
      empty: empty('No statistic fits the search.')}));
  };
  const box = searchBox(draw);
  const zeros = h('input', {type: 'checkbox', onchange: draw});
  draw();
  replace(el, h('div', {class: 'panel'}, h('div', {class: 'row filters'}, field('Search', box),
    h('label', null, zeros, ' With zeros'),
    h('button', {type: 'button', onclick: () => stats(el, part)}, 'Read again')), body));
}

/** Renders Envoy's clusters with their endpoints. */
export async function clusters(el, part) {
  let lines;
  try {
    lines = (await text(paths(part.proxy).resource + '/clusters', part.ctx.signal)).split('\n');
  } catch (err) {
    return offline(el, err);
  }
  const list = parseClusters(lines);
  const body = h('div');
  const draw = () => {
    const wanted = box.value.trim().toLowerCase();
    const rows = list.filter(c => c.name.toLowerCase().includes(wanted));
    replace(body, table([
      {title: 'Cluster', value: c => c.name, cell: c => name(c.name)},
      {title: 'Healthy', value: c => c.endpoints.filter(e => e.healthy).length - c.endpoints.length, cell: c => badge(
        c.endpoints.length && c.endpoints.every(e => e.healthy) ? 'ok' : c.endpoints.some(e => e.healthy) ? 'warn'
          : 'bad',
        `${c.endpoints.filter(e => e.healthy).length} of ${c.endpoints.length}`)},
      {title: 'Endpoints', cell: c => h('ul', {class: 'changes'},
        c.endpoints.slice(0, 20).map(e => h('li', null, name(e.address),
        e.healthy ? null : [' ', badge('bad', e.health)])), c.endpoints.length > 20
          ? h('li', {class: 'quiet'}, `and ${c.endpoints.length - 20} more`) : null)},
      {title: 'Active', class: 'number', value: c => sum(c, 'rq_active'), cell: c => count(sum(c, 'rq_active'))},
      {title: 'Requests', class: 'number', value: c => sum(c, 'rq_total'), cell: c => count(sum(c, 'rq_total'))},
      {title: 'Failed', class: 'number', value: c => sum(c, 'rq_error'), cell: c => count(sum(c, 'rq_error'))},
      {title: 'Connection failures', class: 'number', value: c => sum(c, 'cx_connect_fail'),
        cell: c => count(sum(c, 'cx_connect_fail'))},
    ], rows, {caption: plural(rows.length, 'cluster'), empty: empty('No cluster fits the search.')}));
  };
  const box = searchBox(draw);
  draw();
  replace(el, h('div', {class: 'panel'}, h('div', {class: 'row filters'}, field('Search', box),
    h('button', {type: 'button', onclick: () => clusters(el, part)}, 'Read again')), body));
}

const sum = (c, what) => c.endpoints.reduce((n, e) => n + (Number(e[what]) || 0), 0);

// Parses the text form of Envoy's clusters: lines CLUSTER::ADDRESS::FIELD::VALUE.
function parseClusters(lines) {
  const byName = new Map();
  for (const line of lines) {
    const parts = line.split('::');
    if (parts.length < 3) continue;
    const [cluster, ...rest] = parts;
    if (!byName.has(cluster)) byName.set(cluster, {name: cluster, byAddress: new Map()});
    if (rest.length !== 3 || rest[0].endsWith('_priority') || rest[0] === 'outlier') continue;
    const c = byName.get(cluster);
    if (!c.byAddress.has(rest[0])) c.byAddress.set(rest[0], {address: rest[0], healthy: true, health: 'healthy'});
    const e = c.byAddress.get(rest[0]);
    e[rest[1]] = rest[2];
    if (rest[1] === 'health_flags') Object.assign(e, {healthy: rest[2] === 'healthy',
      health: rest[2].replaceAll('/', ' ').trim()});
  }
  return [...byName.values()].map(c => ({name: c.name, endpoints: [...c.byAddress.values()]}));
}

/** Renders the last lines of the proxy's access log, and reads new ones while the tab is open. */
export async function log(el, part) {
  stop(part);
  const round = part.round;
  const list = h('div', {class: 'log', tabindex: '0', role: 'log', 'aria-label': 'Access log'});
  const note = h('p', {class: 'quiet'});
  const pause = h('input', {type: 'checkbox'});
  const seen = new Set();
  let since = '1h', end = null;
  const read = async () => {
    const answer = await raw('GET', query('/v1/logs', {mesh: part.proxy.mesh, dataplane: part.proxy.name, since,
      limit: MOST_LINES, tail: true}),
      undefined, part.ctx.signal);
    const from = new Date(Date.now() - 5000).toISOString();
    const fresh = [];
    for (const line of (await answer.text()).split('\n').filter(Boolean)) {
      const record = JSON.parse(line);
      if (record.end) end = record.end;
      else if (!seen.has(line)) fresh.push(line, record);
    }
    since = from;
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    for (let i = 0; i < fresh.length; i += 2) {
      seen.add(fresh[i]);
      const r = fresh[i + 1];
      list.append(h('div', {title: r.file}, name(r.line ?? JSON.stringify(r.entry), 4000)));
    }
    while (list.childElementCount > MOST_LINES) list.firstElementChild.remove();
    if (seen.size > 20 * MOST_LINES) seen.clear();
    if (atEnd) list.scrollTop = list.scrollHeight;
    list.hidden = !list.childElementCount;
    replace(note, list.childElementCount
      ? `The last ${plural(list.childElementCount, 'line')} of one hour; new ones appear here.`
      : 'No line in the last hour. A line appears here after a request, if a MeshAccessLog writes a file of this node.',
    end?.notes?.length ? ` ${end.notes[0]}` : '');
  };
  const again = () => {
    part.timer = setTimeout(async () => {
      try {
        if (!pause.checked && document.visibilityState === 'visible') await read();
      } catch (err) {
        if (err.name === 'AbortError') return;
        replace(note, `The log cannot be read: ${err.message}. Trying again.`);
      }
      if (part.round === round) again();
    }, 2000);
  };
  await read();
  if (part.round !== round) return;
  replace(el, panel('Access log', null, h('div', {class: 'row filters'}, h('label', null, pause, ' Pause')), note,
    list));
  list.scrollTop = list.scrollHeight;
  again();
}
