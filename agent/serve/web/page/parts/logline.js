// Lines of logs: what the answer of GET /v1/logs has, and how a line is shown.

import {h, name, visible} from '../core/dom.js';

const FIRST = /^\[([^\]]{10,40})\]\s*/;

/** Splits an answer of JSON lines into `{lines, end}`. */
export function parseAnswer(text) {
  const out = {lines: [], end: null};
  for (const row of text.split('\n')) {
    if (!row) continue;
    const value = JSON.parse(row);
    if (value.end && Object.keys(value).length === 1) out.end = value.end;
    else out.lines.push(parseLine(value, row));
  }
  return out;
}

/** Returns what is shown of a line: `{time, status, text, more, file, node, entry, id}`. */
export function parseLine(value, row) {
  const out = {time: '', status: '', text: '', file: value.file || '', node: value.node || '', id: row, entry: null};
  if (value.kind === 'Event') return event(value, out);
  if (value.entry) return json(value.entry, out);
  const line = String(value.line ?? ''), at = FIRST.exec(line);
  if (at && !Number.isNaN(Date.parse(at[1]))) out.time = new Date(at[1]).toISOString();
  out.text = line.replace(FIRST, '');
  out.status = /" (\d{3}) /.exec(line)?.[1] || '';
  return out;
}

function event(e, out) {
  const o = e.objectRef || {};
  const changes = e.annotations?.['nearside.io/changes'];
  const object = [o.resource, o.namespace, o.name].filter(Boolean).join('/');
  const what = [e.verb, changes || object || e.requestURI].filter(Boolean).join(' ');
  return {...out, entry: e, time: e.stageTimestamp || '', status: String(e.responseStatus?.code || ''),
    text: `${e.user?.username || 'unknown'}: ${what}`};
}

const TIMES = ['start_time', 'time', 'timestamp', '@timestamp', 'ts'];
const CODES = ['response_code', 'responseCode', 'status_code', 'status', 'code', 'rcode'];
const WORDS = ['method', 'request_method', 'authority', 'host', 'path', 'uri', 'name', 'type', 'client', 'source',
  'service', 'destination', 'duration', 'response_flags', 'upstream_host', 'answers', 'reason'];

function json(entry, out) {
  const first = keys => keys.map(k => entry[k]).find(v => v !== undefined && v !== null && v !== '');
  const time = Date.parse(first(TIMES));
  const words = WORDS.filter(k => entry[k] !== undefined && entry[k] !== null && entry[k] !== '' && entry[k] !== '-');
  return {...out, entry, time: Number.isNaN(time) ? '' : new Date(time).toISOString(),
    status: String(first(CODES) ?? ''), text: words.length
      ? words.map(k => ['method', 'path', 'authority'].includes(k) ? short(entry[k])
      : `${k}=${short(entry[k])}`).join(' ') : JSON.stringify(entry)};
}

const short = v => (typeof v === 'string' ? v : JSON.stringify(v)).slice(0, 300);

/** Returns the color of a status. */
export const colorOf = status => /^5|^SERVFAIL/.test(status) ? 'bad' : /^4|^REFUSED|^NXDOMAIN/.test(status) ? 'warn'
  : /^[123]|^NOERROR/.test(status) ? 'ok' : 'off';

/** Returns a line as an item of a list. */
export function lineItem(line, {showFile}) {
  const file = line.file.split('/').pop();
  const head = [h('time', {class: 'mono', title: line.time || 'no time'}, line.time.slice(11, 23) || '–'), ' ',
    line.status ? h('span', {class: `badge ${colorOf(line.status)}`}, name(line.status, 12)) : h('span'), ' ',
    h('code', null, name(line.text, 400))];
  const note = [line.node && `node ${line.node}`, showFile && file].filter(Boolean).join(', ');
  return h('li', {class: 'log-line'}, h('details', {ontoggle: e => {
    const d = e.target;
    if (d.open && d.childElementCount === 1) d.append(whole(line));
  }}, h('summary', null, head, note ? h('span', {class: 'quiet'}, ' ', name(note, 60)) : null)));
}

function whole(line) {
  const text = line.entry ? JSON.stringify(line.entry, null, 2) : line.text;
  return h('div', null,
    h('p', {class: 'quiet'}, line.time ? `${line.time} · ` : '', name(line.file || 'audit log', 200)),
    h('pre', null, visible(text.slice(0, 100000))));
}
