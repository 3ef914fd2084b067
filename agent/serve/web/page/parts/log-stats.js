// Statistics of access logs: rate and latency over time, and counts by the value of a field.

import {get, query} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {bytes, count, duration, percent, plural} from '../core/format.js';
import {link} from '../core/route.js';
import {plot} from '../core/plot.js';
import {empty, panel, table} from '../core/widgets.js';

const INTERVALS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];
const MOST = 120; // intervals of a plot

/** Returns the seconds of an interval for a number of seconds. */
const stepOf = seconds => INTERVALS.find(s => seconds / s <= MOST) || 86400;

/** Returns the seconds of a duration such as 15m or 7d; a time counts from then. */
export function secondsOf(since) {
  const parts = [...since.matchAll(/([\d.]+)(ms|d|h|m|s)/g)];
  if (parts.length && parts.map(p => p[0]).join('') === since) {
    return parts.reduce((sum, [, n, u]) => sum + n * {ms: 0.001, s: 1, m: 60, h: 3600, d: 86400}[u], 0);
  }
  const at = Date.parse(since);
  return Number.isNaN(at) ? 3600 : Math.max(1, (Date.now() - at) / 1000);
}

/** Reads and shows the statistics. `filter` are parameters of GET /v1/logs. */
export async function statistics(el, filter, {by, signal, whereLink}) {
  const seconds = secondsOf(filter.since), step = stepOf(seconds), now = Date.now();
  const read = more => get(withWhere(query('/v1/logs', {...filter, where: null, ...more}), filter.where), signal);
  const over = await read({by: 'time', step});
  const groups = await read({by});
  const notes = [...over.end?.notes || [], ...(groups.end?.notes || []).filter(n => !over.end?.notes?.includes(n))];
  if (!groups.lines) {
    return replace(el, empty('No line matches in this time. Choose a longer time, or fewer conditions.'),
      remarks(notes));
  }
  replace(el, groups.end?.more ? h('p', {class: 'notice warn'},
    'The counts are incomplete: reading took too long. Choose a shorter time.') : null,
  panel('Over time', null, h('div', {class: 'plots'},
    plots(over, {step: step * 1000, begin: now - seconds * 1000, now}))),
  panel(`By ${by}`, null, byValue(groups, {by, whereLink})), remarks(notes));
}

/** Appends the conditions, which are repeated parameters. */
export const withWhere = (path, where = []) => where.length
  ? `${path}&${where.map(w => `where=${encodeURIComponent(w)}`).join('&')}` : path;

function plots(stats, {step, begin, now}) {
  const found = new Map();
  for (const g of stats.items) {
    const t = Date.parse(g.value);
    found.set(t, [...found.get(t) || [], g]);
  }
  const times = [];
  for (let t = Math.floor(begin / step) * step; t <= now; t += step) times.push(t);
  const each = value => times.map(t => (found.get(t) || []).reduce((sum, g) => sum + value(g), 0) * 1000 / step);
  const known = new Set(stats.items.flatMap(g => Object.keys(g.status)));
  const series = ['2xx', '3xx', '1xx', '4xx', '5xx', '0'].filter(s => known.has(s)).map(s => ({
    title: s === '0' ? 'no response' : s, class: `status-${s}`, values: each(g => g.status[s] || 0)}));
  series.push({title: 'without a status', class: 'status-none',
    values: each(g => g.lines - Object.values(g.status).reduce((a, b) => a + b, 0))});
  const latency = p => times.map(t => {
    const values = (found.get(t) || []).map(g => g[p]).filter(v => v !== undefined && v !== null);
    return values.length ? Math.max(...values) : null;
  });
  return [
    plot({title: `Requests or connections per second (intervals of ${duration(step / 1000)})`, kind: 'bars', times,
      step, series, format: v => v >= 100 ? count(Math.round(v)) : String(Number(v.toPrecision(2)))}),
    plot({title: 'Duration', times, step, format: milliseconds, series: [
      {title: '50 % are faster', class: 'line-1', values: latency('p50')},
      {title: '95 % are faster', class: 'line-2', values: latency('p95')},
      {title: '99 % are faster', class: 'line-3', values: latency('p99')}]}),
  ];
}

const milliseconds = ms => ms < 1000 ? `${Number(ms.toPrecision(3))} ms` : duration(ms / 1000);

function byValue(stats, {by, whereLink}) {
  const failed = g => (g.status['5xx'] || 0) + (g.status['0'] || 0);
  const ms = v => v === undefined || v === null ? '' : milliseconds(v);
  const nodes = stats.items.some(g => g.node);
  const left = [stats.unknown && `${plural(stats.unknown, 'line')} without a known ${by}`,
    stats.other && `${plural(stats.other, 'line')} of rarer values`].filter(Boolean);
  return h('div', null, table([
    ...nodes ? [{title: 'Node', value: g => g.node, cell: g => name(g.node, 40)}] : [],
    {title: by[0].toUpperCase() + by.slice(1), value: g => g.value,
      cell: g => h('a', {href: whereLink(by, g.value), title: 'Show these lines'}, name(g.value || '(empty)', 80))},
    {title: 'Lines', class: 'number', value: g => g.lines, cell: g => count(g.lines)},
    {title: 'Per second', class: 'number', value: g => g.perSecond, cell: g => Number(g.perSecond.toPrecision(2))},
    {title: 'Failed', class: 'number', value: g => failed(g) / g.lines, cell: g => failed(g)
      ? h('span', {class: 'bad'}, `${count(failed(g))} (${percent(failed(g) / g.lines)})`) : '0'},
    {title: 'Status', cell: g => Object.entries(g.status).map(([s, n]) => `${s === '0' ? 'none' : s}: ${count(n)}`)
      .join(', ')},
    {title: 'Median', class: 'number', value: g => g.p50 ?? -1, cell: g => ms(g.p50)},
    {title: '95 %', class: 'number', value: g => g.p95 ?? -1, cell: g => ms(g.p95)},
    {title: '99 %', class: 'number', value: g => g.p99 ?? -1, cell: g => ms(g.p99)},
    {title: 'Sent', class: 'number', value: g => g.sent, cell: g => bytes(g.sent)},
  ], stats.items, {key: g => `${g.node || ''}/${g.value}`, most: 50,
    empty: h('p', {class: 'quiet'}, `No line has a known ${by}.`)}),
  h('p', {class: 'hint'}, `${plural(stats.lines, 'line')} in total.`,
    left.length ? ` Left out: ${left.join(', ')}.` : '', ' “Failed” are responses of 500 to 599, and requests ' +
      'without a response. ',
    h('a', {href: link('map', {show: 'traffic'})}, 'Traffic on the map')));
}

/** Returns what was left out, and why. */
export const remarks = notes => notes.length ? h('details', null,
  h('summary', null, `${plural(notes.length, 'remark')} on what was left out`),
  h('ul', null, notes.map(n => h('li', null, name(n, 500))))) : null;
