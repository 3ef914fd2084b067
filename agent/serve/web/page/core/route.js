// Addresses of views: #/VIEW?NAME=VALUE…

/** Returns the address of a view: `link('proxy', {mesh, name})`. Empty values are left out. */
export function link(view, params) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params || {})) {
    if (v !== '' && v !== null && v !== undefined && v !== false) q.append(k, v === true ? '1' : v);
  }
  return `#/${view}${q.size ? '?' + q : ''}`;
}

/** Returns the view and the parameters of the current address. */
export function current() {
  const [view, rest] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  return {view: view || 'health', params: new URLSearchParams(rest || '')};
}

/** Shows another view, as a new entry of the browser's history. */
export function go(view, params) {
  location.hash = link(view, params);
}

/** Changes parameters of the current address without a new entry and without rendering again. */
export function keep(changes) {
  const {view, params} = current();
  const next = {...Object.fromEntries(params), ...changes};
  history.replaceState(null, '', link(view, next));
}

/** Returns the address of the view that shows a resource. */
export function resource(r) {
  const kind = r.type || r.kind;
  if (kind === 'Dataplane') return link('proxy', {mesh: r.mesh, name: r.name});
  if (kind === 'ZoneEgress' || kind === 'ZoneIngress') return link('proxy', {kind, name: r.name});
  return link('policy', {type: kind, mesh: r.mesh, name: r.name});
}
