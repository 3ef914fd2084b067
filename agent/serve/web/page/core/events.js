// The stream of events of the agent (GET /v1/events), shared by all views.

import {raw} from './api.js';

const subscribers = new Set();
const delays = [500, 1000, 2000, 5000]; // ms before the next attempt
const HIDDEN = 10000; // ms until a hidden page ends its stream
let started = false;

/**
 * Calls a function with each event: `{type, id, data}`. Types: those of the API, `hello` after each
 * new connection (read everything again), and `down` with the error when a connection ends. Returns a
 * function that ends the calls.
 */
export function subscribe(f) {
  subscribers.add(f);
  return () => subscribers.delete(f);
}

/**
 * Starts the stream. It connects again by itself until the page is left. Browsers open at most six
 * connections to a server, so a hidden page has none: many tabs do not block each other.
 */
export function start() {
  if (started) return;
  started = true;
  run();
}

async function run() {
  for (let failed = 0; ; failed++) {
    let hello = false;
    await visible();
    const end = new AbortController();
    const forget = whenHidden(() => end.abort());
    try {
      await read(event => {
        if (event.type === 'hello') hello = true;
        tell(event);
      }, end.signal);
      tell({type: 'down', data: null});
    } catch (err) {
      if (end.signal.aborted) continue;
      tell({type: 'down', data: err});
      if (err.status === 401 || err.status === 403 || err.status === 404) await until('session');
    } finally {
      forget();
    }
    if (hello) failed = 0;
    await new Promise(done => setTimeout(done, delays[Math.min(failed, delays.length - 1)]));
  }
}

// Whether the page has been left. Browsers keep left pages for a while, with their connections.
let left = false;
addEventListener('pagehide', () => { left = true; });
addEventListener('pageshow', () => { left = false; });

const visible = () => new Promise(done => {
  if (!document.hidden && !left) return done();
  const look = () => {
    if (document.hidden || left) return;
    document.removeEventListener('visibilitychange', look);
    removeEventListener('pageshow', look);
    done();
  };
  document.addEventListener('visibilitychange', look);
  addEventListener('pageshow', look);
});

// Calls a function when the page is left, or has been hidden for some time. Returns what ends this.
function whenHidden(f) {
  let timer = 0;
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(f, HIDDEN);
  };
  document.addEventListener('visibilitychange', look);
  addEventListener('pagehide', f);
  return () => {
    clearTimeout(timer);
    removeEventListener('pagehide', f);
    document.removeEventListener('visibilitychange', look);
  };
}

const waiting = new Map();

/** Lets a stream that ended without permission try again. */
export const retry = () => waiting.get('session')?.();

const until = what => new Promise(done => waiting.set(what, done));

function tell(event) {
  for (const f of [...subscribers]) {
    try {
      f(event);
    } catch (err) {
      console.error(err);
    }
  }
}

async function read(each, signal) {
  const answer = await raw('GET', '/v1/events', undefined, signal, {Accept: 'text/event-stream'});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const event = parse(part);
      if (event) each(event);
    }
  }
}

function parse(text) {
  const event = {type: 'message', id: '', data: ''};
  let any = false;
  for (const line of text.split(/\r?\n/)) {
    const at = line.indexOf(':');
    if (at === 0) continue; // a comment that keeps the connection open
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? '' : line.slice(at + 1).replace(/^ /, '');
    if (field === 'event') event.type = value;
    else if (field === 'id') event.id = value;
    else if (field === 'data') event.data += (event.data ? '\n' : '') + value;
    any = true;
  }
  if (!any) return null;
  event.data = event.data ? JSON.parse(event.data) : null;
  return event;
}
