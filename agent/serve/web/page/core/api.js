// Requests to the server of the page, which passes those below api/ to the agent.

/** A failed request: the problem document of the agent, or a failed connection (status 0). */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    this.title = problem.title || '';
    this.type = problem.type || '';
    this.parameters = problem.invalid_parameters || [];
    this.denied = problem.denied || [];
    this.problem = problem;
  }
}

const HEADERS = {'X-Nearside-Page': '1', Accept: 'application/json'};

let files; // of a static export: the file of each request

/** Tells the module that the page is a static export. */
export async function useExport() {
  files = await request('GET', 'api/index.json');
}

/** Returns a path with a query. Empty, false, null, and undefined values are left out. */
export function query(path, values) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(values || {})) {
    if (v !== '' && v !== false && v !== null && v !== undefined) q.append(k, v);
  }
  return q.size ? `${path}?${q}` : path;
}

/** Returns a path of the API: `` path`/meshes/${mesh}/dataplanes/${name}` `` escapes the values. */
export function path(texts, ...values) {
  return String.raw({raw: texts}, ...values.map(encodeURIComponent));
}

// A list is exported as a whole. These parameters do not matter for it, and by those it is filtered here.
const IGNORED = ['size', 'offset', 'meta', 'listed'];
const FILTERS = {
  mesh: (item, v) => !('mesh' in item) || item.mesh === v,
  name: (item, v) => item.name === v,
  type: (item, v) => item.type === v,
  author: (item, v) => item.author === v,
  source: (item, v) => item.source === v || Boolean(item.source?.startsWith(v + ':')),
  from: (item, v) => !('from' in item) || item.from === v,
  to: (item, v) => !('to' in item) || item.to === v,
  since: (item, v) => Date.now() - Date.parse(item.time) <= parseFloat(v) * 3600_000,
};

// Returns the file of an answer in an export, and the filters, `[parameter, value]`, that the file does not include.
function exported(path) {
  const key = path.replace(/^\//, ''), [plain, search] = key.split('?');
  if (files[key]) return {file: files[key], filters: []};
  const filters = [...new URLSearchParams(search)].filter(([k]) => !IGNORED.includes(k));
  if (files[plain] && filters.every(([k]) => FILTERS[k])) return {file: files[plain], filters};
  throw new ApiError(404, {title: 'Not in this export', detail: `the export has no answer for ${path}`});
}

// Returns a list of an export with only the items that pass all filters.
function filtered(answer, filters) {
  for (const list of filters.length ? ['items', 'edges', 'services', 'refused'] : []) {
    if (!Array.isArray(answer[list])) continue;
    const before = answer[list].length;
    answer[list] = answer[list].filter(item => filters.every(([k, v]) => FILTERS[k](item, v)));
    if ((list === 'items' || list === 'edges') && 'total' in answer) answer.total -= before - answer[list].length;
  }
  return answer;
}

/** Reads a document of the API: `get('/v1/status')`. Its property `etag` is the header ETag, if there is one. */
export async function get(path, signal) {
  if (files) {
    const {file, filters} = exported(path);
    return filtered(await request('GET', 'api/' + file, undefined, signal), filters);
  }
  return request('GET', 'api' + path, undefined, signal);
}

/** Sends a document, or a text of YAML, and returns the answer. Options: `headers`, `signal`. */
export function send(method, path, body, {headers, signal} = {}) {
  if (files) throw new ApiError(405, {title: 'An export answers no questions', detail: 'run nearside ui -f DIR'});
  return request(method, 'api' + path, body, signal, headers);
}

/** Returns whether the page shows files without an agent. */
export const ofFiles = session => session.mode === 'files' || session.mode === 'static' && session.files?.length > 0;

/** Asks the server of the page itself: `own('GET', 'ui/session')`. */
export const own = (method, path, body, headers) => request(method, path, body, undefined, headers);

/** Reads a text of the API, such as Envoy's stats. */
export async function text(path, signal) {
  const at = files ? '/' + exported(path).file : path;
  const answer = await fetchChecked('GET', 'api' + at, undefined, signal, {Accept: '*/*'});
  return answer.text();
}

/** Returns the answer itself, to read its headers or to read it while it grows. */
export const raw = (method, path, body, signal, headers) => fetchChecked(method, 'api' + path, body, signal, headers);

async function request(method, url, body, signal, headers) {
  const answer = await fetchChecked(method, url, body, signal, headers);
  if (answer.status === 204) return null;
  const value = await answer.json();
  const etag = answer.headers.get('ETag');
  if (etag && value && typeof value === 'object') Object.defineProperty(value, 'etag', {value: etag});
  return value;
}

const listeners = new Set();

/** Calls a function with each ApiError of status 0, 401, or 502, and with null after a success. */
export const onReach = f => listeners.add(f);

async function fetchChecked(method, url, body, signal, headers) {
  const init = {method, headers: {...HEADERS, ...headers}, signal, credentials: 'same-origin', cache: 'no-store'};
  if (typeof body === 'string') {
    init.body = body;
    init.headers['Content-Type'] ??= 'application/yaml';
  } else if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers['Content-Type'] = 'application/json';
  }
  let answer;
  try {
    answer = await fetch(url, init);
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw report(new ApiError(0, {title: 'Not reachable', detail: 'the server of this page does not answer'}));
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({title: answer.statusText}));
    throw report(new ApiError(answer.status, problem));
  }
  for (const f of listeners) f(null);
  return answer;
}

function report(err) {
  if ([0, 401, 502].includes(err.status)) for (const f of listeners) f(err);
  return err;
}
