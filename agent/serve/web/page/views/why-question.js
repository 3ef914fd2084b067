// A question of Why?: its address, its form for the API and for the command line, and the history.

import {get, path, query} from '../core/api.js';
import {dataplaneName, splitName} from '../parts/names.js';

/** The parameters of a question, in the order of the address. */
export const FIELDS = ['mesh', 'from', 'to', 'kind', 'method', 'path', 'headers', 'http', 'sni', 'alpn', 'silent', 'ip',
  'shadow'];

/** Reads a question from the parameters of an address. */
export const fromParams = params => Object.fromEntries(FIELDS.map(f => [f, params.get(f) || '']));

/** Returns the fields of a question that matter for its kind. */
export function trimmed(q) {
  const request = q.kind === 'request', tls = q.kind === 'tls';
  return {
    mesh: q.mesh, from: q.from.trim(), to: q.to.trim(), kind: q.kind,
    method: request && q.method !== 'GET' ? q.method : '', path: request && q.path !== '/' ? q.path.trim() : '',
    headers: request ? q.headers.trim() : '', http: request ? q.http : '',
    sni: tls ? q.sni.trim() : '', alpn: tls ? q.alpn.trim() : '', silent: q.kind === 'tcp' ? q.silent : '',
    ip: q.ip.trim(), shadow: q.shadow,
  };
}

/** Returns the headers of a text with one `name: value` in each line. */
export function headersOf(text) {
  return text.split('\n').map(l => l.trim()).filter(Boolean).map(line => {
    const at = line.indexOf(':', 1);
    return at < 0 ? {name: line, value: ''} : {name: line.slice(0, at).trim(), value: line.slice(at + 1).trim()};
  });
}

/** Returns the body of POST /v1/explain for a question with a resolved client and destination. */
export function body(q) {
  const target = {mesh: q.mesh || 'default', from: q.from, to: q.to};
  if (q.ip) target.ip = q.ip;
  if (q.shadow) target.shadow = true;
  if (q.kind === 'request') {
    const request = {...target, method: q.method || 'GET', path: q.path || '/'};
    const headers = headersOf(q.headers);
    if (headers.length) request.headers = headers;
    if (q.http === '2') request.http2 = true;
    if (q.http === '1.0') request.http10 = true;
    return {request};
  }
  const connection = target;
  if (q.kind === 'tls') {
    connection.tls = true;
    if (q.sni) connection.sni = q.sni === '-' ? '' : q.sni;
    if (q.alpn) connection.alpn = q.alpn.split(/[\s,]+/).filter(Boolean);
  } else if (q.silent) connection.silent = true;
  return {connection};
}

const quote = text => /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Returns the command that asks the same, of an agent or of files. */
export function commandOf(q, files = []) {
  const words = ['nearside', 'explain', q.kind === 'request' ? 'request' : 'connection'];
  const add = (flag, value) => value && words.push(flag, quote(value));
  if (q.mesh && q.mesh !== 'default') add('-m', q.mesh);
  add('--from', q.from);
  add('--to', q.to);
  if (q.kind === 'request') {
    add('--method', q.method);
    add('--path', q.path);
    for (const header of headersOf(q.headers)) add('--header', `${header.name}=${header.value}`);
    if (q.http === '2') words.push('--http2');
    if (q.http === '1.0') words.push('--http10');
  } else if (q.kind === 'tls') {
    words.push('--tls');
    if (q.sni) words.push(`--sni=${quote(q.sni === '-' ? '' : q.sni)}`);
    for (const protocol of q.alpn.split(/[\s,]+/).filter(Boolean)) add('--alpn', protocol);
  } else if (q.silent) words.push('--silent');
  add('--ip', q.ip);
  if (q.shadow) words.push('--shadow');
  for (const f of files) add('-f', f);
  return words.join(' ');
}

const LONGEST = 253; // characters of a name

// Whether a text before a slash is a kind of service; otherwise it is a mesh.
const isService = text => /^mesh(external|multizone)?service$/i.test(text);

const isAddress = text => /^\[.*\]:\d+$/.test(text) || /^[^:]*:\d+$/.test(text);

/** Reads what the form completes and what questions are resolved with. Answers are read once. */
export class Known {
  #read = new Map();
  constructor(signal) { this.signal = signal; }

  #once(key, f) {
    let found = this.#read.get(key);
    if (!found) {
      found = f();
      this.#read.set(key, found);
      found.catch(() => this.#read.delete(key));
    }
    return found;
  }

  /** Forgets everything, after a change of resources. */
  forget() { this.#read.clear(); }

  /** Returns the names of the resources of a kind. */
  names(kind, mesh) {
    return this.#once(`${kind}/${mesh}`, async () =>
      (await get(query('/v1/names', {kind, mesh}), this.signal)).names);
  }

  /** Returns the services as a dataplane sees them; none if there is no such dataplane. */
  backends(mesh, from) {
    return this.#once(`backends/${mesh}/${from}`, async () => {
      if (from.length > LONGEST) return [];
      try {
        return (await get(path`/v1/dataplanes/${mesh}/${from}/backends`, this.signal)).items;
      } catch (err) {
        if (err.status === 404) return [];
        throw err;
      }
    });
  }

  /** Returns up to 20 dataplanes of a value of kuma.io/service. */
  instances(mesh, service) {
    return this.#once(`instances/${mesh}/${service}`, async () => {
      const found = await get(query(path`/meshes/${mesh}/dataplanes/_overview`,
        {tag: `kuma.io/service:${service}`, size: 20}), this.signal);
      return {names: found.items.map(d => d.name), total: found.total};
    });
  }

  /** Returns the protocol of a service: http, tcp, and so on; "" if it is unknown. */
  async protocol(mesh, service) {
    const found = await this.#once(`service/${mesh}/${service}`, () =>
      get(query('/v1/services', {mesh, name: service}), this.signal));
    return found.items.find(s => s.name === service)?.ports[0]?.protocol || '';
  }

  /** Returns the dataplane that a client means: itself, or the first one of the service with this name. */
  async client(mesh, from) {
    if (from.length > LONGEST) return {name: from, of: '', others: [], total: 0};
    if ((await this.names('Dataplane', mesh)).includes(from)) return {name: from, of: '', others: [], total: 1};
    const {names, total} = await this.instances(mesh, from);
    if (!names.length) return {name: from, of: '', others: [], total: 0};
    return {name: names[0], of: from, others: names.slice(1), total};
  }

  /** Returns the service that a destination means, as the dataplane sees it, or undefined. */
  async service(mesh, dataplane, to) {
    const list = await this.backends(mesh, dataplane);
    if (isAddress(to)) {
      const host = to.replace(/:\d+$/, '');
      return list.find(b => b.addresses.includes(to)) || list.find(b => b.hostnames.includes(host));
    }
    return list.find(b => b.name === to) || list.find(b => b.cluster === to || b.hostnames.includes(to) ||
      b.ref && (`${b.ref.kind}/${b.ref.name}`.toLowerCase() === to.toLowerCase() || b.ref.name === to));
  }

  /** Returns the question with plain names: "Dataplane/prod/web" is the client "web" in the mesh "prod". */
  async named(q) {
    const {mesh, name: from} = await dataplaneName(q.from, q.mesh, (kind, of) => this.names(kind, of));
    const to = isAddress(q.to) ? {mesh: '', name: q.to} : splitName(q.to, isService);
    if (to.mesh && to.mesh !== (mesh || to.mesh)) return {...q, mesh, from}; // another mesh has no such service
    const full = to.mesh || mesh;
    return {...q, mesh: full === 'default' ? '' : full, from, to: to.type ? `${to.type}/${to.name}` : to.name};
  }

  /** Returns the question with a dataplane as its client, HOST:PORT as its destination, and a kind. */
  async resolve(q) {
    const mesh = q.mesh || 'default';
    const client = await this.client(mesh, q.from);
    const service = await this.service(mesh, client.name, q.to);
    let to = q.to;
    if (!isAddress(to) && service?.addresses.length) to = service.addresses[0];
    const kind = q.kind || await this.kind(mesh, service, to);
    return {q: {...q, mesh, from: client.name, to, kind}, client, service};
  }

  /** Returns the kind of question that fits a destination. */
  async kind(mesh, service, to) {
    if (service) {
      const protocol = await this.protocol(mesh, service.ref?.name || service.name).catch(() => '');
      if (['http', 'http2', 'grpc'].includes(protocol)) return 'request';
      if (protocol) return protocol === 'tls' ? 'tls' : 'tcp';
    }
    return /:443$/.test(to) ? 'tls' : /:80$/.test(to) ? 'request' : 'tcp';
  }
}

const KEY = 'nearside.questions';
const MOST = 40;

/** Returns the questions that were asked in this browser, latest first. */
export function asked() {
  try {
    const list = JSON.parse(localStorage.getItem(KEY) || '[]');
    return Array.isArray(list) ? list.filter(e => e && typeof e.q === 'object').slice(0, MOST) : [];
  } catch {
    return []; // no permission to store, or another format
  }
}

/**
 * Remembers a question and its outcome. Values of headers and the query of the path may be secrets, so
 * they are left out, and the entry is marked as a draft.
 */
export function remember(q, verdict) {
  const draft = Boolean(q.headers || q.path.includes('?'));
  const kept = {...q, headers: headersOf(q.headers).map(x => x.name + ':').join('\n'), path: q.path.split('?')[0]};
  if (FIELDS.some(f => (kept[f] || '').length > 500)) return;
  const same = JSON.stringify(kept);
  const list = [{q: kept, verdict, draft, time: new Date().toISOString()},
    ...asked().filter(e => JSON.stringify(e.q) !== same)].slice(0, MOST);
  try {
    localStorage.setItem(KEY, JSON.stringify(list));
  } catch { /* no permission to store: there is no history */ }
}

/** Removes the history. */
export function forgetAll() {
  try {
    localStorage.removeItem(KEY);
  } catch { /* no permission: there is nothing to remove */ }
}
