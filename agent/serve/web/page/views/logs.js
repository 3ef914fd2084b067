// Logs: search, live lines, and statistics of access logs, of the audit log, and of DNS queries.

import {get, query, raw} from '../core/api.js';
import {h, name, refresh, replace, visible} from '../core/dom.js';
import {plural} from '../core/format.js';
import {keep, link} from '../core/route.js';
import {combobox, command, empty, failure, field, head, say, tabs} from '../core/widgets.js';
import {lineItem, parseAnswer} from '../parts/logline.js';
import {follow} from '../parts/log-follow.js';
import {dataplaneName, namesOf} from '../parts/names.js';
import {remarks, statistics, withWhere} from '../parts/log-stats.js';

const LINES = 300; // that a search shows
const TIMES = [['5m', '5 minutes'], ['15m', '15 minutes'], ['1h', '1 hour'], ['6h', '6 hours'], ['24h', '1 day'],
  ['7d', '7 days']];
const LOGS = [['access', 'Access logs'], ['audit', 'Audit log'], ['dns', 'DNS queries']];
const FIELDS = ['service', 'route', 'status', 'client', 'source', 'method', 'path', 'authority', 'flags', 'duration',
  'upstream', 'details', 'protocol', 'agent', 'request', 'received', 'sent', 'cluster', 'mesh'];

/** Renders the view. */
export async function render(root, ctx) {
  const p = ctx.params;
  const state = {log: p.get('log') || 'access', mesh: p.get('mesh') || '', dataplane: p.get('dataplane') || '',
    since: p.get('since') || '1h', status: p.get('status') || '', where: p.get('where') || '',
    tab: p.get('tab') || 'lines', by: p.get('by') || 'service', nodes: p.get('nodes') || ''};
  if (ctx.session.mode !== 'agent') {
    replace(root, head('Logs'), empty('Files and exports have no logs. On a node with an agent, run:', 'nearside ui'));
    return;
  }
  if (state.dataplane) {
    const d = await dataplaneName(state.dataplane, state.mesh, namesOf(ctx.signal));
    Object.assign(state, {mesh: d.mesh || 'default', dataplane: d.name});
  }
  const form = h('div'), area = h('div');
  const filter = () => ({log: state.log, mesh: state.mesh, dataplane: state.log === 'access' ? state.dataplane : '',
    since: state.since, status: state.status, where: conditions(state.where), allNodes: state.nodes ? 'true' : ''});
  const set = changes => {
    Object.assign(state, changes);
    if ('log' in changes) {
      Object.assign(state, {dataplane: '', where: changes.log === 'audit' ? '' : state.where, nodes: ''});
      if (state.log !== 'access' && state.tab === 'stats') state.tab = 'lines';
    }
    keep(state);
    draw();
  };
  const whereLink = (by, value) => link('logs', {...state, tab: 'lines', where: [...conditions(state.where),
    by === 'route' ? `path~${escape(value)}` : `${by}=${value}`].join('\n')});
  replace(root, head('Logs', 'What proxies, the API, and the resolver of this node have logged.'), form, area);

  let end = null; // of the requests of a tab
  function draw() {
    end?.abort();
    refresh(form, controls(state, set, ctx));
    const list = [
      {id: 'lines', title: 'Lines', render: el => lines(el, filter(), state, part(), set)},
      {id: 'live', title: 'Live', render: el => live(el, filter(), part())},
    ];
    if (state.log === 'access') {
      list.push({id: 'stats', title: 'Statistics', render: el => stats(el, part())});
    }
    replace(area, tabs(list, state.tab, id => {
      end?.abort();
      state.tab = id;
      keep(state);
    }, 'Logs'));
  }
  const part = () => {
    end = new AbortController();
    return AbortSignal.any([end.signal, ctx.signal]);
  };
  async function stats(el, signal) {
    const out = h('div', null, h('p', {class: 'quiet'}, 'Counting lines…'));
    const by = combobox('Count by', {value: state.by, suggest: t => FIELDS.filter(f => f.includes(t.trim())),
      onchange: v => set({by: v.trim() || 'service'})});
    replace(el, h('div', {class: 'row filters'}, by.el), out);
    statistics(out, filter(), {by: state.by, signal, whereLink}).catch(err => {
      if (err.name !== 'AbortError') replace(out, failure(err, draw));
    });
  }
  ctx.atEnd(() => end?.abort());
  draw();
}

/** Returns the conditions of a text: one per line. */
const conditions = text => text.split('\n').map(s => s.trim()).filter(Boolean);

const escape = text => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

function controls(state, set, ctx) {
  const option = (list, chosen) => list.map(([v, text]) => h('option', {value: v, selected: v === chosen}, text));
  const times = TIMES.some(([v]) => v === state.since) ? TIMES
    : [...TIMES, [state.since, `since ${state.since.slice(0, 40)}`]];
  const parts = [
    field('Log', h('select', {id: 'logs-log', onchange: e => set({log: e.target.value})}, option(LOGS, state.log))),
    field('Of the last', h('select', {id: 'logs-since', onchange: e => set({since: e.target.value})},
      option(times, state.since))),
  ];
  if (state.log === 'access') {
    const suggest = async text => {
      const list = await get('/v1/dataplanes', ctx.signal).catch(() => ({items: []}));
      const [, wanted] = /^(?:[^/]*\/)?(.*)$/.exec(text.trim());
      return (list.items || []).filter(d => d.name?.includes(wanted)).map(d => ({value: `${d.mesh}/${d.name}`}));
    };
    parts.push(combobox('Dataplane', {inputId: 'logs-dataplane', placeholder: 'All', suggest,
      value: state.dataplane ? `${state.mesh}/${state.dataplane}` : '', onchange: v => {
        if (!v.trim()) return set({mesh: '', dataplane: ''});
        dataplaneName(v, '', namesOf(ctx.signal)).then(d => set({mesh: d.mesh || 'default', dataplane: d.name}));
      }}).el);
  }
  parts.push(field('Status', h('input', {id: 'logs-status', value: state.status, placeholder: '5xx,429',
    autocomplete: 'off', onchange: e => set({status: e.target.value.trim()})})));
  if (state.log !== 'audit') parts.push(where(state, set));
  if (state.dataplane || state.nodes) {
    parts.push(h('p', null, h('input', {type: 'checkbox', id: 'logs-nodes', checked: Boolean(state.nodes),
      onchange: e => set({nodes: e.target.checked ? '1' : ''})}), ' ', h('label', {for: 'logs-nodes'}, 'All nodes')));
  }
  return h('div', {class: 'row filters'}, parts);
}

/** Returns the conditions, and a field for one more. */
function where(state, set) {
  const list = conditions(state.where);
  const add = combobox('Condition', {inputId: 'logs-where', placeholder: 'duration>500ms', suggest: text => {
    const t = text.trim();
    if (/[=~<>]/.test(t)) return [];
    return FIELDS.filter(f => f.startsWith(t)).map(f => ({value: f + (f === 'duration' ? '>' : '='),
      note: f === 'path' ? 'or ~ for a regular expression' : ''}));
  }, onchange: v => /[=~<>]./.test(v) && set({where: [...list, v.trim()].join('\n')})});
  if (list.length) {
    const remove = (w, i) => h('button', {type: 'button', class: 'plain',
      'aria-label': `Remove the condition ${visible(w.slice(0, 80))}`,
      onclick: () => set({where: list.filter((_, n) => n !== i).join('\n')})}, '✕');
    add.el.append(h('ul', {class: 'chips', 'aria-label': 'Conditions'}, list.map((w, i) => h('li', null,
      h('span', {class: 'tag'}, name(w, 60), ' ', remove(w, i))))));
  }
  return add.el;
}

/** Shows the newest lines of a search. */
async function lines(el, filter, state, signal, set) {
  const answer = await raw('GET', withWhere(query('/v1/logs', {...filter, where: null, tail: 'true', limit: LINES}),
    filter.where), undefined, signal, {Accept: '*/*'});
  const {lines: found, end} = parseAnswer(await answer.text());
  if (!found.length) return replace(el, await nothing(filter, state, set), remarks(end?.notes || []));
  found.sort((a, b) => a.time < b.time ? 1 : a.time > b.time ? -1 : 0);
  const files = new Set(found.map(l => l.file)).size;
  const later = end?.more === 'limit' ? `The newest ${plural(found.length, 'line')}. Choose a shorter time or more ` +
    'conditions for others.' : plural(found.length, 'line') + ', the newest first.';
  say(later);
  const late = (end?.unanswered || []).map(n => h('p', {class: 'notice warn'}, 'No answer of ', name(n.name, 60), ': ',
    name(n.reason, 300)));
  replace(el, h('p', {class: 'quiet'}, later,
    end?.more === 'time' ? ' Reading took too long, so lines may be missing.' : ''), late,
    h('ul', {class: 'log-lines'}, found.map(l => lineItem(l, {showFile: files > 1}))), remarks(end?.notes || []));
}

/** Says why there are no lines, and what to do. */
async function nothing(filter, state, set) {
  if (filter.status || filter.where.length) {
    return empty('No line of this time matches the status and the conditions.', h('p', null,
      h('button', {type: 'button', onclick: () => set({status: '', where: ''})}, 'Remove them')));
  }
  if (state.log === 'audit') return empty('Nothing was changed in this time. Choose a longer time.');
  if (state.log === 'dns') return empty('No query was logged in this time. Choose a longer time.');
  const streams = await get('/v1/accesslogs').catch(() => ({total: 1}));
  if (streams.total) {
    return empty('No line was written in this time. Envoys write their lines after some seconds. Choose a longer ' +
      'time, or look at the streams:', 'nearside status');
  }
  return empty('No proxy of this node logs into a file of the agent. Create a MeshAccessLog with a backend of type ' +
    'File, and connect an Envoy:', 'nearside get meshaccesslogs',
  h('p', null, h('a', {href: link('change')}, 'Change resources')));
}

/** Shows lines as they are written. */
function live(el, filter, signal) {
  const list = h('ul', {class: 'log-lines'}), status = h('p', {class: 'quiet', role: 'status'}, 'Waiting for lines…');
  const pause = h('button', {type: 'button', 'aria-pressed': 'false', onclick: () => {
    const on = pause.getAttribute('aria-pressed') === 'false';
    pause.setAttribute('aria-pressed', on);
    replace(pause, on ? 'Continue' : 'Pause');
    stream.pause(on);
  }}, 'Pause');
  const own = filter.log === 'access' && filter.dataplane ? h('p', {class: 'hint'},
    'Envoys write their lines after some seconds. To write them at once: ',
    command(`nearside logs -f --dataplane ${filter.dataplane} -m ${filter.mesh}`)) : null;
  replace(el, h('div', {class: 'row'}, pause, status), own, list);
  const stream = follow(filter, {list, status, signal});
}
