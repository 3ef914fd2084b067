// Plots over time as SVG: stacked bars and lines. Each plot is also a table.

import {h, replace, svg} from './dom.js';
import {table} from './widgets.js';

const HEIGHT = 190, LEFT = 52, RIGHT = 10, TOP = 8, BOTTOM = 24;
const HOUR = 3600e3;

/**
 * Returns a plot. `title` says what it shows, with the unit. `times` are the beginnings of intervals
 * of `step` ms, equally spaced. Series: `{title, class, values}`, a value for each time or null; the
 * class sets the color. `kind` is `bars` (stacked) or `lines`. `format(value)` returns a value as text.
 */
export function plot({title, times, step, series, kind = 'lines', format = String}) {
  const shown = series.filter(s => s.values.some(v => v));
  const area = h('div', {class: 'plot-area'});
  let width = 0;
  const watch = new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now < 50 || Math.abs(now - width) < 2) return;
    width = now;
    replace(area, draw({title, times, step, series: shown, kind, format, width}));
  });
  watch.observe(area);
  const legend = h('ul', {class: 'legend', 'aria-label': `Series of ${title}`}, shown.map(s =>
    h('li', null, h('span', {class: `swatch ${s.class}`, 'aria-hidden': 'true'}), ' ', s.title)));
  return h('figure', {class: 'plot'}, h('figcaption', null, title), area, legend, asTable({title, times, series: shown,
    format}));
}

/** Returns the values as a table that is filled when it is opened. */
function asTable({title, times, series, format}) {
  const body = h('div');
  return h('details', {ontoggle: e => {
    if (!e.target.open || body.firstChild) return;
    const rows = times.map((t, i) => ({t, i})).filter(r => series.some(s => s.values[r.i])).reverse();
    body.append(table([
      {title: 'Time (UTC)', value: r => r.t, cell: r => new Date(r.t).toISOString().slice(0, 19).replace('T', ' ')},
      ...series.map(s => ({title: s.title, class: 'number', value: r => s.values[r.i] ?? -1,
        cell: r => s.values[r.i] === null ? '' : format(s.values[r.i])})),
    ], rows, {caption: title, most: 20, empty: h('p', {class: 'quiet'}, 'There are no values.')}));
  }}, h('summary', null, 'As a table'), body);
}

function draw({title, times, step, series, kind, format, width}) {
  const inside = {width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM};
  const begin = times[0], end = times[times.length - 1] + step;
  const x = t => LEFT + (t - begin) / (end - begin) * inside.width;
  const sums = times.map((_, i) => series.reduce((sum, s) => kind === 'bars' ? sum + (s.values[i] || 0)
    : Math.max(sum, s.values[i] || 0), 0));
  const ticks = scale(Math.max(...sums, 0));
  const top = ticks[ticks.length - 1];
  const y = v => TOP + inside.height * (1 - v / top);
  const grid = ticks.map(v => svg('g', {class: 'tick'}, svg('line', {x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v)}),
    svg('text', {x: LEFT - 6, y: y(v) + 4, 'text-anchor': 'end'}, format(v))));
  const most = Math.max(2, Math.floor(inside.width / 90));
  const axis = timeTicks(begin, end, most).map(t => svg('text', {class: 'time', x: x(t), y: HEIGHT - 7,
    'text-anchor': 'middle'}, clock(t, end - begin)));
  const marks = kind === 'bars' ? bars({times, step, series, x, y}) : series.map(s => line({times, step, s, x, y}));
  const hover = times.map((t, i) => svg('rect', {class: 'hover', x: x(t), y: TOP,
    width: Math.max(1, x(t + step) - x(t)), height: inside.height}, svg('title', null, [clock(t, 0),
    ...series.filter(s => s.values[i] !== null).map(s => `${s.title}: ${format(s.values[i])}`)].join('\n'))));
  const peak = Math.max(...sums), at = times[sums.indexOf(peak)];
  const summary = series.length ? `${title}. ${series.map(s => s.title).join(', ')}. Highest: ${format(peak)} at ` +
    `${clock(at, 0)} UTC.` : `${title}. There are no values.`;
  return svg('svg', {class: 'plot-picture', width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: 'img',
    'aria-label': summary}, grid, axis, marks, hover);
}

function bars({times, step, series, x, y}) {
  const sums = times.map(() => 0);
  return series.map(s => svg('g', {class: `mark ${s.class}`}, times.map((t, i) => {
    const v = s.values[i];
    if (!v) return null;
    const low = y(sums[i]), high = y(sums[i] + v);
    sums[i] += v;
    return svg('rect', {x: x(t), y: high, width: Math.max(1, x(t + step) - x(t) - 1),
      height: Math.max(0.5, low - high)});
  })));
}

function line({times, step, s, x, y}) {
  let d = '', open = false;
  const dots = [];
  s.values.forEach((v, i) => {
    if (v === null) {
      open = false;
      return;
    }
    const px = x(times[i] + step / 2), py = y(v);
    d += `${open ? 'L' : 'M'}${px.toFixed(1)} ${py.toFixed(1)}`;
    if (!open && (s.values[i + 1] ?? null) === null) dots.push(svg('circle', {cx: px, cy: py, r: 2}));
    open = true;
  });
  return svg('g', {class: `mark line ${s.class}`}, svg('path', {d}), dots);
}

/** Returns 3 to 6 round values from 0 to at least the greatest value. */
export function scale(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 4, power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].find(n => n * power >= rough) * power;
  return Array.from({length: Math.ceil(most / size - 1e-9) + 1}, (_, i) => Number((i * size).toPrecision(12)));
}

const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800].map(s => 1000 * s);

/** Returns round times of an interval, at most `most`. */
function timeTicks(begin, end, most) {
  const size = STEPS.find(s => (end - begin) / s <= most) || STEPS[STEPS.length - 1];
  const out = [];
  for (let t = Math.ceil(begin / size) * size; t <= end && out.length < 50; t += size) out.push(t);
  return out.filter(t => t > begin && t < end);
}

function clock(t, length) {
  const text = new Date(t).toISOString();
  if (length > 36 * HOUR) return text.slice(5, 16).replace('T', ' ');
  return length >= HOUR / 6 ? text.slice(11, 16) : text.slice(11, 19);
}
