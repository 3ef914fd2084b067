// The page: session, navigation, and one view at a time.

import {ApiError, onReach, own, useExport} from './core/api.js';
import * as events from './core/events.js';
import {h, name, replace} from './core/dom.js';
import {current, link} from './core/route.js';
import {command, failure, live as liveRegion, say, startClock} from './core/widgets.js';

// The views of the navigation, and those that are reached from them.
const VIEWS = [
  ['health', 'Health'], ['why', 'Why?'], ['map', 'Map'], ['proxies', 'Proxies'], ['change', 'Change'],
  ['policies', 'Policies'], ['dns', 'DNS'], ['logs', 'Logs'], ['members', 'Members'],
];
const PARENT = {proxy: 'proxies', policy: 'policies', history: 'change'};

const main = document.getElementById('main');
const banner = document.getElementById('banner');
let session = null;
let leave = null; // ends the current view

async function begin() {
  try {
    session = await own('GET', 'ui/session');
  } catch (err) {
    return login(err);
  }
  if (session.mode === 'static') await useExport();
  document.title = `nearside · ${session.node || session.instance}`;
  where();
  navigation();
  if (session.mode !== 'static') {
    events.start();
    events.retry();
  }
  show();
}

/** Shows the form for a token, or how to get a new address. With `ended`, says why the session has ended. */
function login(err, ended) {
  leave?.();
  leave = null;
  document.body.classList.add('out');
  if (err.status !== 401) return replace(main, failure(err, begin));
  if ((ended?.login || err.problem.login) !== 'token') {
    return replace(main, h('h1', null, 'This page has ended'),
      h('p', null, 'Its address was used, or its session has ended. Start it again on the node:'),
      command('nearside ui'));
  }
  const token = h('input', {type: 'password', id: 'token', name: 'token', autocomplete: 'off', required: true});
  const said = h('p', {class: 'bad', role: 'alert'});
  const form = h('form', {class: 'login', onsubmit: async e => {
    e.preventDefault();
    try {
      await own('POST', 'ui/session', {token: token.value.trim()});
      document.body.classList.remove('out');
      await begin();
    } catch (failed) {
      replace(said, failed.message);
      token.select();
    }
  }},
  h('h1', null, 'Sign in'),
  ended ? h('p', {class: 'notice warn'}, 'Your session has ended: ', name(err.message, 300)) : null,
  h('p', null, 'The page has the rights of a token of the API.'),
  h('label', {for: 'token'}, 'Token'), token, said,
  h('button', {class: 'primary'}, 'Sign in'),
  h('details', null, h('summary', null, 'Where do I get a token?'),
    h('p', null, 'On the node, with the rights of an operator:'),
    command('nearside token create --api --subject NAME --valid-for 12h')));
  replace(main, form);
  token.focus();
}

function where() {
  const parts = [h('span', {class: 'instance'}, name(session.node || session.instance, 40))];
  if (session.mode === 'files') parts.push(h('span', {class: 'tag'}, 'files, no agent'));
  if (session.mode === 'static') parts.push(h('span', {class: 'tag'}, 'export'));
  parts.push(h('span', {class: 'tag', id: 'access', title: session.write
    ? 'Views may apply changes with your rights.'
    : `To apply changes, ${session.remedy || 'run nearside ui --write'}.`},
  session.write ? 'may write' : 'read-only'));
  if (session.login === 'token') {
    parts.push(h('button', {class: 'plain', onclick: async () => {
      await own('DELETE', 'ui/session').catch(() => {});
      location.reload();
    }}, 'Sign out'));
  }
  replace(document.getElementById('where'), parts);
}

function navigation() {
  const {view} = current();
  const chosen = PARENT[view] || view;
  const nav = document.getElementById('nav');
  if (!nav.firstChild) {
    nav.append(h('ul', null, VIEWS.map(([id, title]) => h('li', null, h('a', {href: link(id)}, title)))));
  }
  for (const a of nav.querySelectorAll('a')) {
    if (a.hash === link(chosen)) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current'); // the link stays, and with it the focus of the keyboard
  }
  const here = nav.querySelector('[aria-current]');
  if (here) nav.scrollLeft = here.offsetLeft - nav.clientWidth / 3; // a narrow screen shows a part
}

async function show() {
  if (!session) return;
  leave?.();
  document.body.classList.remove('out');
  const end = new AbortController(), subscriptions = [];
  leave = () => {
    end.abort();
    for (const f of subscriptions) f();
  };
  const {view, params} = current();
  navigation();
  const early = new Set(); // types of the events during the first reading, which may have missed them
  const rendered = events.subscribe(e => early.add(e.type));
  subscriptions.push(rendered);
  const ctx = {
    params, session, signal: end.signal,
    /** Calls a function with each event of some types, or of all. */
    on(types, f) {
      if (end.signal.aborted) return;
      subscriptions.push(events.subscribe(e => (!types || types.includes(e.type)) && f(e)));
    },
    /**
     * Calls a function again after events of some types, `hello`, and `lost`, at most once per `every` ms and
     * one at a time.
     */
    live(types, f, every = 250) {
      if (end.signal.aborted) return;
      const wanted = [...types, 'hello', 'lost'];
      subscriptions.push(liveRegion(run => {
        if (wanted.some(type => early.has(type))) run();
        return events.subscribe(e => wanted.includes(e.type) && run());
      }, f, every, end.signal));
    },
    /** Calls a function when the view is left. */
    atEnd(f) { subscriptions.push(f); },
  };
  const root = h('div', {class: `view view-${view}`});
  const inside = main.contains(document.activeElement);
  try {
    if (![...VIEWS.map(v => v[0]), ...Object.keys(PARENT)].includes(view)) {
      throw new ApiError(404, {title: 'No such view', detail: `there is no view "${view}"; choose one above`});
    }
    const module = await import(`./views/${view}.js`);
    if (end.signal.aborted) return;
    replace(main, root);
    scrollTo(0, 0);
    if (inside) main.focus({preventScroll: true}); // the link that led here is gone
    await module.render(root, ctx);
  } catch (err) {
    if (end.signal.aborted || err.name === 'AbortError') return;
    if (!(err instanceof ApiError)) console.error(err);
    replace(main, root);
    replace(root, failure(err, show));
  } finally {
    rendered();
    early.clear();
  }
  const title = root.querySelector('h1');
  if (!title) return;
  document.title = `${title.textContent} · nearside · ${session.node || session.instance}`;
  if (before) say(title.textContent); // screen readers announce only new pages by themselves
  before = view;
}

let before = ''; // the last view

let down = false;

// The agent or the server of the page may end under the page: say so until they answer again.
function reach(err) {
  if (err && err.status === 401 && session) {
    const ended = session;
    session = null;
    replace(banner);
    down = false;
    return login(err, ended);
  }
  if (!err && down && !streamDown) {
    down = false;
    replace(banner, h('p', {class: 'notice good'}, 'Connected again.'));
    setTimeout(() => down || replace(banner), 4000);
  } else if (err && err.status !== 401 && !down) {
    down = true;
    replace(banner, h('p', {class: 'notice bad'}, err.status === 502
      ? 'The agent does not answer. The page shows the last state, and connects again by itself.'
      : 'The server of this page does not answer. If you have ended nearside ui, start it again.'));
  }
}

let streamDown = false;
onReach(reach);
events.subscribe(e => {
  if (e.type === 'hello') {
    const was = streamDown;
    streamDown = false;
    document.body.dataset.events = 'connected';
    if (was) {
      reach(null);
      own('GET', 'ui/session').then(s => { session = s; where(); }, () => {});
    }
  } else if (e.type === 'down') {
    document.body.dataset.events = 'none';
    streamDown = ![403, 404].includes(e.data?.status); // without permission for events, views still answer
    if (!streamDown) return;
    reach(e.data && e.data.status === 401 ? e.data : new ApiError(e.data?.status || 502, {}));
  }
});

addEventListener('hashchange', show);
// A view that is left ends its requests. What waits for their answers has ended, too.
addEventListener('unhandledrejection', e => e.reason?.name === 'AbortError' && e.preventDefault());
startClock();
begin();
