// Health: the problems of the node with the next command of each, and the state of its parts.

import {get, ofFiles, text} from '../core/api.js';
import {h, name, refresh} from '../core/dom.js';
import {count, plural} from '../core/format.js';
import {keep, link, resource} from '../core/route.js';
import {badge, command, empty, failure, head, panel, say, table, when} from '../core/widgets.js';
import {cards, certificates} from './health-cards.js';
import {eventList, startEvents} from './health-events.js';

const SHOWN = 50; // problems at first
const CHECKS = 5000; // ms until the checks are read after a problem
const COUNTERS = 20000; // ms between readings while nothing happens
const SHARE = 100; // a status is read at most in this part of the time, so that the page costs the agent little

/** Renders the view. */
export async function render(root, ctx) {
  const state = {
    status: null, members: null, certificates: null, read: '', error: null, all: false,
    check: ctx.params.get('check') || '', text: ctx.params.get('q') || '',
  };
  const offline = ofFiles(ctx.session);
  const parts = {head: h('div'), verdict: h('div', null, h('p', {class: 'quiet'}, 'Reading the state of the node…')),
    problems: h('div'), cards: h('div'), checks: h('div')};
  const shown = new Map(); // of each part: the values that it shows
  let counted = null;

  // A part is only drawn when its values have changed, so that a selection and open details stay.
  const draw = (part, values, f) => {
    const text = JSON.stringify(values);
    if (shown.get(part) === text) return;
    shown.set(part, text);
    refresh(parts[part], f());
  };
  const drawAll = () => {
    const s = state.status;
    draw('head', [s.info, s.store.revision], () => title(s, ctx.session));
    draw('verdict', [s.problems, s.ready, s.unchecked, s.unexamined, state.read, state.stale, state.error?.message],
      () => verdict(state, read, offline, ctx.session.mode === 'static'));
    draw('problems', [s.problems, state.check, state.text, state.all], () => problems(state, drawAll));
    draw('cards', [s, state.members, state.certificates], () => cards(s, state, offline));
    draw('checks', [s.checks], () => checks(s.checks.filter(c => !offline || FILE_CHECKS.includes(c.name))));
    const now = `${s.problems.length}`;
    if (counted !== null && counted !== now) say(summary(s));
    counted = now;
  };

  let timer = 0, begun = 0, took = 0;
  const later = ms => {
    clearTimeout(timer);
    timer = setTimeout(() => document.hidden ? later(COUNTERS) : read().catch(() => {}), ms);
  };
  const soon = (most = COUNTERS) => later(Math.min(most, Math.max(0, begun + SHARE * took - Date.now())));
  ctx.atEnd(() => clearTimeout(timer));
  async function read() {
    begun = Date.now();
    try {
      const [status, members] = await Promise.all([get('/v1/status', ctx.signal), optional('/v1/members', ctx.signal)]);
      Object.assign(state, {status, members, error: null, stale: false, read: new Date().toISOString()});
    } catch (err) {
      if (err.name === 'AbortError' || !state.status) throw err;
      state.error = err;
    }
    drawAll();
    if (ctx.session.mode === 'static') return;
    took = Date.now() - begun;
    if (state.status.unchecked || state.status.unexamined) soon();
    else later(COUNTERS);
  }

  root.append(parts.head, parts.verdict, parts.problems, parts.cards);
  const events = eventList();
  root.append(events, parts.checks);
  await read();
  startEvents(events, ctx);
  readCertificates(state, ctx, drawAll);
  if (ctx.session.mode !== 'static') {
    ctx.live(['change', 'proxy', 'nack'], () => soon(state.stale ? CHECKS : COUNTERS));
    ctx.on(['problem'], ({data}) => {
      const same = p => ['resource', 'severity', 'check', 'reason'].every(k => p[k] === data.problem[k]);
      const rest = state.status.problems.filter(p => !same(p));
      const list = data.state === 'new' ? [...rest, data.problem] : rest;
      state.status = {...state.status, problems: list.sort((a, b) => a.severity.localeCompare(b.severity))};
      state.stale = true; // the checks are those of before
      drawAll();
      soon(CHECKS);
    });
  }
}

// Reads a document that a sender may be unable to read; null then.
async function optional(path, signal) {
  try {
    return await get(path, signal);
  } catch (err) {
    if (err.name === 'AbortError' || [0, 401, 502].includes(err.status)) throw err;
    return null;
  }
}

// Certificates are in the metrics, which change rarely.
async function readCertificates(state, ctx, draw) {
  if (ctx.session.mode !== 'agent') return;
  const read = async () => {
    try {
      state.certificates = certificates(await text('/metrics', ctx.signal));
      draw();
    } catch { /* no permission: the card says how to ask */ }
  };
  await read();
  const timer = setInterval(() => document.hidden || read(), 5 * 60 * 1000);
  ctx.atEnd(() => clearInterval(timer));
}

// The checks that say something about files without an agent.
const FILE_CHECKS = ['resource-files', 'config'];

function title(s, session) {
  const i = s.info;
  if (ofFiles(session)) {
    return head('Health', ['Resources of ', session.files.map((f, n) => [n ? ', ' : '', h('strong', null, name(f))]),
      ', without an agent']);
  }
  return head('Health', [
    'Node ', h('strong', null, name(i.node)), i.zone ? [' in zone ', name(i.zone)] : null, ` · ${i.product} `,
    name(i.version), i.started ? [' · started ', when(i.started)] : null, ` · revision ${count(s.store.revision)}`,
  ]);
}

function numbers(s) {
  const errors = s.problems.filter(p => p.severity === 'error').length;
  return {errors, warnings: s.problems.length - errors};
}

function summary(s) {
  const {errors, warnings} = numbers(s);
  if (!errors && !warnings) return 'No problems';
  return [errors && plural(errors, 'error'), warnings && plural(warnings, 'warning')].filter(Boolean).join(' and ');
}

function verdict(state, read, offline, still) {
  const s = state.status;
  const {errors, warnings} = numbers(s);
  const kind = errors || !s.ready ? 'bad' : warnings ? 'warn' : 'good';
  const unready = s.checks.find(c => !c.ok && !c.degraded) || s.problems.find(p => p.unready);
  const left = [s.unchecked && `${plural(s.unchecked, 'proxy', 'proxies')} that are not connected`,
    s.unexamined && plural(s.unexamined, 'policy', 'policies')].filter(Boolean).join(' and ');
  const sentence = offline ? `An agent would ${errors ? 'not ' : ''}load all of these files without an error.` : [
    s.ready ? 'The node is ready. '
      : ['The node is not ready', unready ? [': ', name(unready.reason, 300)] : null, '. '],
    state.stale ? 'The checks are read again…' : passed(s.checks),
    left ? ` Not examined yet: ${left}; the page asks again.` : null,
  ];
  return h('div', {class: `verdict ${kind}`},
    h('div', null, h('p', {class: 'answer'}, summary(s)), h('p', null, sentence),
      still ? h('p', {class: 'quiet'}, 'From an export, which does not change.') : h('p', {class: 'quiet'}, 'Measured ',
        when(state.read), '.', h('button', {type: 'button', class: 'plain gap', dataset: {key: 'read'},
          onclick: () => read()}, 'Check now'))),
    state.error ? failure(state.error, read) : null);
}

function passed(checks) {
  const failed = checks.filter(c => !c.ok).length, degraded = checks.filter(c => c.ok && c.degraded).length;
  if (!failed && !degraded) return `All ${plural(checks.length, 'check')} pass.`;
  return [`${count(checks.length - failed - degraded)} of ${plural(checks.length, 'check')} pass`,
    failed && `${count(failed)} failed`, degraded && `${count(degraded)} degraded`].filter(Boolean).join(', ') + '.';
}

// Problems with one reason are one entry, with the list of their resources.
function grouped(list) {
  const groups = new Map();
  for (const p of list) {
    const key = [p.severity, p.check, p.reason].join('\n');
    const group = groups.get(key);
    if (group) group.resources.push(p.resource);
    else groups.set(key, {...p, key, resources: p.resource ? [p.resource] : []});
  }
  return [...groups.values()];
}

function problems(state, draw) {
  const all = state.status.problems;
  if (!all.length) return null;
  const classes = new Map();
  for (const p of all) classes.set(p.check, (classes.get(p.check) || 0) + 1);
  const wanted = state.text.toLowerCase();
  const list = grouped(all.filter(p => (!state.check || p.check === state.check) &&
    (!wanted || `${p.resource} ${p.check} ${p.reason}`.toLowerCase().includes(wanted))));
  const set = change => {
    Object.assign(state, change);
    keep({check: state.check, q: state.text});
    draw();
  };
  const filters = all.length > 5 || state.check || state.text ? h('div', {class: 'searching'},
    h('input', {type: 'search', 'aria-label': 'Search the problems', placeholder: 'Search', value: state.text,
      dataset: {key: 'search'}, oninput: e => set({text: e.target.value})}),
    h('div', {class: 'classes', role: 'group', 'aria-label': 'Classes of problems'},
      [...classes].sort().map(([check, n]) => h('button', {type: 'button', class: 'class', dataset: {key: `c-${check}`},
        'aria-pressed': String(state.check === check),
        onclick: () => set({check: state.check === check ? '' : check})}, `${check} ${count(n)}`)))) : null;
  const shown = state.all ? list.slice(0, 500) : list.slice(0, SHOWN);
  const left = list.length - shown.length;
  return panel('Problems', null, filters,
    list.length ? h('ul', {class: 'problems'}, shown.map(problem))
      : empty('No problem fits the search.', h('button', {type: 'button', onclick: () => set({check: '', text: ''})},
        'Show all problems')),
    left > 0 ? h('p', {class: 'more'}, state.all ? `${plural(left, 'problem')} more: search for them.`
      : h('button', {type: 'button', dataset: {key: 'more'}, onclick: () => set({all: true})},
        `Show more (${plural(left, 'problem')})`)) : null);
}

function problem(p) {
  const next = page(p);
  return h('li', {class: p.severity === 'error' ? 'bad' : 'warn'},
    h('p', {class: 'what'}, badge(p.severity === 'error' ? 'bad' : 'warn', p.severity), ' ',
      h('span', {class: 'quiet'}, p.check), ' ', affected(p)),
    h('p', {class: 'reason'}, long(p.reason)),
    h('p', {class: 'next'}, command(p.command), next ? h('a', {href: next.href}, next.text) : null));
}

// The whole text, of which the rest is shown on request if it is very long.
function long(text) {
  if (text.length <= 600) return name(text, 600);
  return [name(text.slice(0, 400), 400), '… ', h('details', {class: 'inline', dataset: {key: `r-${text.slice(0, 60)}`}},
    h('summary', null, 'Whole reason'), name(text, 20000))];
}

function affected(p) {
  const [first, ...others] = p.resources;
  if (!first) return null;
  const one = text => h('a', {href: resource(parse(text)), dataset: {key: `p-${p.check}-${text}`}}, name(text));
  if (!others.length) return one(first);
  return [one(first), ' and ', h('details', {class: 'inline', dataset: {key: `d-${p.key}`}},
    h('summary', null, `${count(others.length)} more`),
    h('ul', {class: 'flat'}, others.slice(0, 200).map(r => h('li', null, one(r)))),
    others.length > 200 ? h('p', {class: 'quiet'}, `and ${count(others.length - 200)} others`) : null)];
}

/** Returns the resource of a printed name: KIND/MESH/NAME, or KIND/NAME. */
export function parse(text) {
  const [type, a, ...rest] = text.split('/');
  return rest.length ? {type, mesh: a, name: rest.join('/')} : {type, name: a || ''};
}

const PAGES = [
  [/^dns/, 'dns', 'Show DNS'], [/^(log-|access-logs|audit-log|lost-lines)/, 'logs', 'Show the logs'],
  [/^(peers|pool-|name-twice)/, 'members', 'Show the members'],
  [/^(stream-refused|unknown-node|pending|rejected|withheld)/, 'proxies', 'Show the proxies'],
];

function page(p) {
  if (p.resources.length === 1) {
    const r = parse(p.resources[0]);
    return {href: resource(r), text: ['Dataplane', 'ZoneEgress', 'ZoneIngress'].includes(r.type)
      ? 'Show the proxy' : 'Show the resource'};
  }
  const found = PAGES.find(([pattern]) => pattern.test(p.check));
  return found && {href: link(found[1]), text: found[2]};
}

function checks(list) {
  const rank = c => c.ok ? c.degraded ? 1 : 2 : 0;
  const word = c => [['bad', 'failed'], [c.error ? 'bad' : 'warn', 'degraded'], ['ok', 'passed']][rank(c)];
  return panel('Checks', null, table([
    {title: 'Check', cell: c => h('span', {class: 'mono'}, name(c.name)), value: c => c.name},
    {title: 'State', cell: c => badge(...word(c)), value: rank},
    {title: 'Reason', cell: c => [long(c.reason || ''),
      rank(c) < 2 && c.command ? h('p', null, command(c.command)) : null]},
  ], list.toSorted((a, b) => rank(a) - rank(b)), {key: c => c.name}));
}
