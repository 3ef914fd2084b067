// Lines of logs as they are written.

import {query, raw} from '../core/api.js';
import {replace} from '../core/dom.js';
import {count, plural} from '../core/format.js';
import {failure} from '../core/widgets.js';
import {lineItem, parseLine} from './logline.js';
import {withWhere} from './log-stats.js';

const MOST = 500; // lines that are shown
const EACH = 200; // ms between two changes of the list
const WAITING = 5000; // lines that wait while the list is paused

/** Adds lines at the beginning of a list until the signal. Returns `{pause(on)}`. */
export function follow(filter, {list, status, signal}) {
  let waiting = [], paused = false, total = 0, missed = 0, timer = 0;
  let since = new Date().toISOString();
  const seen = new Set(); // lines of the last connection, which may come again
  const show = () => {
    timer = 0;
    if (paused || !waiting.length) return tell();
    const rows = waiting.slice(-MOST).reverse().map(l => lineItem(l, {showFile: !filter.dataplane}));
    waiting = [];
    list.prepend(...rows);
    while (list.childElementCount > MOST) list.lastElementChild.remove();
    tell();
  };
  const tell = () => replace(status, total ? `${plural(total, 'line')} since the beginning` : 'Waiting for lines…',
    paused ? `, paused: ${count(waiting.length)} wait` : '', missed ? `, ${count(missed)} not shown` : '');
  const take = line => {
    if (seen.has(line.id)) return;
    seen.add(line.id);
    if (seen.size > 2000) seen.delete(seen.values().next().value);
    total++;
    if (line.time > since) since = line.time;
    waiting.push(line);
    if (waiting.length > WAITING) {
      waiting.shift();
      missed++;
    }
    timer ||= setTimeout(show, EACH);
  };
  const connect = async () => {
    for (let failed = 0; !signal.aborted;) {
      const hidden = new AbortController(); // a hidden page reads nothing
      const hide = () => document.hidden && hidden.abort();
      document.addEventListener('visibilitychange', hide);
      try {
        await visible(signal);
        const begin = performance.now();
        const end = await read(filter, since, take, AbortSignal.any([signal, hidden.signal]));
        if (end?.more === 'changed') await pause(1000, signal);
        failed = performance.now() - begin > 5000 ? 0 : failed + 1;
        if (failed > 1) await pause(Math.min(10000, 500 * 2 ** failed), signal);
      } catch (err) {
        if (signal.aborted) return;
        if (hidden.signal.aborted) continue;
        if (err.status && ![429, 502, 503].includes(err.status)) { // none: the stream has broken
          replace(status, failure(err, () => connect()));
          return;
        }
        replace(status, `${err.status === 429 ? err.message : 'No connection'}. The page tries again.`);
        await pause(Math.min(10000, 1000 * 2 ** failed++), signal);
      } finally {
        document.removeEventListener('visibilitychange', hide);
      }
    }
  };
  connect();
  signal.addEventListener('abort', () => clearTimeout(timer));
  return {pause(on) {
    paused = on;
    if (!on) show();
    else tell();
  }};
}

/** Waits until the page is visible, or until the signal. */
const visible = signal => new Promise(done => {
  if (!document.hidden) return done();
  const end = new AbortController();
  const check = () => {
    if (document.hidden && !signal.aborted) return;
    end.abort();
    done();
  };
  document.addEventListener('visibilitychange', check, {signal: end.signal});
  signal.addEventListener('abort', check, {signal: end.signal});
});

async function read(filter, since, take, signal) {
  const path = withWhere(query('/v1/logs', {...filter, where: null, allNodes: '', since, follow: 'true',
    limit: 100000}), filter.where);
  const answer = await raw('GET', path, undefined, signal, {Accept: '*/*'});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = '', end = null; ;) {
    const {done, value} = await reader.read();
    if (done) return end;
    const rows = (rest + value).split('\n');
    rest = rows.pop();
    for (const row of rows) {
      if (!row) continue;
      const parsed = JSON.parse(row);
      if (parsed.end && Object.keys(parsed).length === 1) end = parsed.end;
      else take(parseLine(parsed, row));
    }
  }
}

const pause = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => {
    clearTimeout(timer);
    done();
  }, {once: true});
});
