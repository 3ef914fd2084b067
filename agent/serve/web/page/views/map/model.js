// The data of the map: services in groups, and the edges between the groups. Pure functions.

/** The most nodes of the graph and of the matrix. */
export const MOST_NODES = 60;

/** The most services that are shown one by one beside groups. */
const MOST_SINGLE = 45;

/** Returns the identifier of a service. */
export const keyOf = s => `${s.mesh}/${s.name}`;

/** Filters of edges, with their names. */
export const FILTERS = [
  ['', 'All pairs that may talk or try to'],
  ['traffic', 'With traffic'],
  ['listed', 'Named by a dataplane'],
  ['denied', 'Denied in whole or in part'],
  ['unreachable', 'Allowed, without an outbound'],
];

const passes = {
  traffic: e => e.requests > 0 || e.failed > 0 || e.refused > 0,
  listed: e => e.listed,
  denied: e => e.permission !== 'allowed',
  unreachable: e => e.permission !== 'denied' && !e.reach,
};

/**
 * Returns the ways to group services: `{id, title, of(service)}`. `of` is null for names, which are
 * cut into ranges.
 */
export function groupings(services) {
  const found = [];
  const distinct = of => new Set(services.map(of)).size;
  const offer = (id, title, of) => {
    const n = distinct(of);
    if (n > 1 && n < services.length) found.push({id, title, of, size: n});
  };
  offer('mesh', 'Mesh', s => s.mesh);
  offer('namespace', 'Namespace', s => s.namespace || '(no namespace)');
  offer('zone', 'Zone', s => (s.zones || []).join(', ') || '(no zone)');
  for (const tag of tagsOf(services)) offer(`tag:${tag}`, `Tag ${tag}`, s => s.tags?.[tag] ?? `(no ${tag})`);
  if (services.length > 2) found.push({id: 'name', title: 'Name', of: null, size: 0});
  return found;
}

function tagsOf(services) {
  const counts = new Map();
  for (const s of services) {
    for (const tag of Object.keys(s.tags || {})) counts.set(tag, (counts.get(tag) || 0) + 1);
  }
  const skip = ['kuma.io/service', 'kuma.io/protocol', 'kuma.io/zone', 'k8s.kuma.io/namespace'];
  return [...counts].filter(([tag]) => !skip.includes(tag))
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 20).map(([tag]) => tag);
}

/** Returns the identifier of the best grouping: none for few services. */
export function bestGrouping(services, list) {
  if (services.length <= MOST_NODES) return 'none';
  const fits = list.filter(g => g.of && g.size <= MOST_NODES);
  return (fits.find(g => g.id === 'namespace' && g.size >= 4) || fits.find(g => g.size >= 4) || fits[0] ||
    {id: 'name'}).id;
}

/** Cuts sorted services into at most `most` ranges of names. */
function ranges(services, most) {
  const size = Math.ceil(services.length / most), out = [];
  for (let i = 0; i < services.length; i += size) {
    const members = services.slice(i, i + size);
    const first = members[0], last = members[members.length - 1];
    out.push({id: `names:${keyOf(first)}|${keyOf(last)}`, label: members.length === 1 ? first.name
      : `${first.name} … ${last.name}`, members});
  }
  return out;
}

/** Returns the services of a group of {@link build}, or null if the identifier is no group. */
export function membersOf(id, services, grouping) {
  if (id.startsWith('names:')) {
    const [first, last] = id.slice(6).split('|');
    return services.filter(s => keyOf(s) >= first && keyOf(s) <= last);
  }
  if (!id.startsWith('group:') || !grouping?.of) return null;
  return services.filter(s => `group:${grouping.of(s)}` === id);
}

/**
 * Returns the nodes and links of the map. State: `services` (sorted by mesh and name), `edges`,
 * `grouping` (of {@link groupings}, or null), `search`, `inside` (identifier of a group), `focus`
 * (identifier of a service), `show` (a filter). Chosen services are nodes of their own, and then
 * only their links are shown.
 */
export function build({services, edges, grouping, search, inside, focus, show}) {
  const meshes = new Set(services.map(s => s.mesh)).size;
  const wanted = show && passes[show] ? edges.filter(passes[show]) : edges;
  let chosen = null;
  const text = (search || '').trim().toLowerCase();
  if (focus) chosen = services.filter(s => keyOf(s) === focus);
  else if (inside) chosen = membersOf(inside, services, grouping) || [];
  if (text) chosen = (chosen || services).filter(s => s.name.toLowerCase().includes(text));
  const touched = focus ? neighbors(chosen, wanted) : null;
  const nodes = [], nodeOf = new Map();
  const add = node => {
    nodes.push(node);
    for (const s of node.members) nodeOf.set(keyOf(s), node);
  };
  const single = s => add({id: `service:${keyOf(s)}`, label: s.name, members: [s], single: s,
    mesh: meshes > 1 ? s.mesh : ''});
  const singles = chosen ? chosen : grouping ? [] : services;
  const room = chosen ? MOST_SINGLE : MOST_NODES;
  if (singles.length <= room) singles.forEach(single);
  else ranges(singles, room / 2 | 0).forEach(add);
  const near = touched ? services.filter(s => touched.has(keyOf(s)) && !nodeOf.has(keyOf(s))) : [];
  if (touched) {
    if (near.length < MOST_NODES - 1) near.forEach(single);
    else grouped(near, grouping, MOST_NODES - 10).forEach(add);
  } else if (grouping || chosen) {
    const rest = services.filter(s => !nodeOf.has(keyOf(s)));
    grouped(rest, grouping, MOST_NODES - nodes.length).forEach(add);
  }
  const links = aggregate(wanted, nodeOf);
  const own = chosen && new Set(chosen.map(s => nodeOf.get(keyOf(s)).id));
  const kept = own ? links.filter(l => own.has(l.from) || own.has(l.to)) : links;
  const seen = new Set(kept.flatMap(l => [l.from, l.to]));
  return {middle: own, nodes: own ? nodes.filter(n => own.has(n.id) || seen.has(n.id)) : nodes, links: kept,
    matches: chosen ? chosen.length : services.length, edges: kept.reduce((n, l) => n + l.edges.length, 0)};
}

function neighbors(chosen, edges) {
  const keys = new Set(chosen.map(keyOf)), out = new Set();
  for (const e of edges) {
    const from = `${e.mesh}/${e.from}`, to = `${e.mesh}/${e.to}`;
    if (keys.has(from)) out.add(to);
    if (keys.has(to)) out.add(from);
  }
  return out;
}

function grouped(services, grouping, most) {
  if (!services.length) return [];
  if (!grouping?.of) return ranges(services, Math.max(1, Math.min(most, grouping ? 30 : 12)));
  const groups = new Map();
  for (const s of services) {
    const value = grouping.of(s);
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(s);
  }
  let list = [...groups].sort((a, b) => a[0] < b[0] ? -1 : 1);
  const out = [];
  if (list.length > most) { // the largest groups, and one for the rest
    const by = [...list].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
    const large = new Set(by.slice(0, Math.max(0, most - 1)).map(g => g[0]));
    const rest = list.filter(g => !large.has(g[0]));
    list = list.filter(g => large.has(g[0]));
    out.push({id: 'rest', label: `${rest.length} other groups`, members: rest.flatMap(g => g[1])});
  }
  return [...list.map(([value, members]) => ({id: `group:${value}`, label: value, members})), ...out];
}

/** Sums up edges between nodes. Links are in the order of their first edge. */
function aggregate(edges, nodeOf) {
  const links = new Map();
  for (const e of edges) {
    const from = nodeOf.get(`${e.mesh}/${e.from}`), to = nodeOf.get(`${e.mesh}/${e.to}`);
    if (!from || !to) continue;
    const id = `${from.id}\n${to.id}`;
    let l = links.get(id);
    if (!l) {
      l = {id, from: from.id, to: to.id, edges: [], allowed: 0, denied: 0, partly: 0, reach: 0, listed: 0,
        requests: 0, failed: 0, refused: 0};
      links.set(id, l);
    }
    l.edges.push(e);
    l[e.permission]++;
    if (e.reach) l.reach++;
    if (e.listed) l.listed++;
    l.requests += e.requests;
    l.failed += e.failed;
    l.refused += e.refused;
  }
  return [...links.values()];
}

/** Returns the permission of a link: allowed, denied, or partly. */
export const permissionOf = l => !l.denied && !l.partly ? 'allowed' : !l.allowed && !l.partly ? 'denied' : 'partly';

/** Returns how important a link is, for the ones that are drawn first. */
export const weightOf = l => (l.refused ? 1e12 : 0) + (l.requests ? 1e9 + l.requests : 0) + (l.listed ? 1e6 : 0) +
  (permissionOf(l) === 'partly' ? 1e4 : 0) + (l.reach ? 1e2 : 0);
