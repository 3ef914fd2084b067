// The kinds of resources, and the paths of their resources in the API.

import {get, path, query} from '../core/api.js';

let known; // promise of the kinds

/** Returns the kinds, `{kind, plural, short, policy, legacy, global}`, in the order in which they act. */
export function kinds() {
  known ||= get('/v1/kinds').then(list => list.items, err => {
    known = null;
    throw err;
  });
  return known;
}

/** Returns a kind by any of its names, or undefined. */
export async function kindOf(text) {
  const wanted = String(text || '').toLowerCase();
  return (await kinds()).find(k => [k.kind.toLowerCase(), k.plural, k.short].includes(wanted));
}

/** Returns the path of a resource. */
export const resourcePath = (kind, r) => kind.global ? path`/${kind.plural}/${r.name}`
  : path`/meshes/${r.mesh}/${kind.plural}/${r.name}`;

/** Returns the path of the history of a resource. */
export const historyPath = (kind, r) => kind.global ? path`/v1/history/${kind.plural}/${r.name}`
  : path`/v1/history/${kind.plural}/${r.mesh}/${r.name}`;

/** Reads at most `most` items of a paged list. Returns `{items, total}`. */
export async function pages(address, values, signal, most = 5000) {
  const items = [];
  for (let offset = 0; ;) {
    const page = await get(query(address, {...values, size: 1000, offset: offset || ''}), signal);
    items.push(...page.items);
    offset += page.items.length;
    if (!page.next || !page.items.length || items.length >= most) return {items, total: page.total};
  }
}

/** The file of a resource that comes from a file, or "". */
export const fileOf = source => source?.startsWith('file:') ? source.slice(5) : '';

/** The last part of the URL of an xDS type: "Cluster". */
export const typeName = url => url.slice(url.lastIndexOf('.') + 1);
