// The config of a proxy as a tree, with the policies behind each line.

import {h, name} from '../core/dom.js';
import {plural} from '../core/format.js';
import {source} from '../core/widgets.js';
import {typeName} from './kinds.js';

/** The most matches of a search that are listed. */
export const MOST_HITS = 200;

/** Returns the readable path of a member, as the API writes it: `filterChains[0].filters[NAME]`. */
function member(path, key, value, inList) {
  if (inList) return `${path}[${typeof value?.name === 'string' && value.name ? value.name : key}]`;
  return key === '' || /[.[\]/ ]/.test(key) ? `${path}[${key}]` : path ? `${path}.${key}` : key;
}

const isBranch = v => v !== null && typeof v === 'object' && (Array.isArray(v) ? v.length
  : Object.keys(v).length) > 0;

function summary(v) {
  if (Array.isArray(v)) return plural(v.length, 'item');
  const kind = v['@type'] ? typeName(v['@type']) : '';
  return kind || Object.entries(v).filter(([, x]) => x === null || typeof x !== 'object').slice(0, 3)
    .map(([k, x]) => `${k} ${String(x).slice(0, 40)}`).join(', ') || plural(Object.keys(v).length, 'field');
}

/** Returns the nodes of a tree for the members of a JSON value. `by(path)` returns the sources of a line. */
export function valueNodes(value, id, path, by) {
  const inList = Array.isArray(value);
  return Object.entries(value).map(([key, v]) => {
    const at = member(path, key, v, inList);
    const node = {id: `${id}/${escape(key)}`,
      label: inList ? `[${typeof v?.name === 'string' && v.name ? v.name : key}]` : key,
      note: () => note(by?.(at))};
    if (!isBranch(v)) return {...node, text: v === null || typeof v !== 'object' ? JSON.stringify(v) : inList ? '[]'
      : '{}'};
    return {...node, text: summary(v), children: () => valueNodes(v, node.id, at, by)};
  });
}

function note(list) {
  if (!list?.length) return null;
  return h('span', {class: 'by'}, list.slice(0, 3).map((p, i) => [i ? ', ' : '', source(p)]),
    list.length > 3 ? ` and ${list.length - 3} more` : null);
}

const escape = key => key.replaceAll('~', '~0').replaceAll('/', '~1');

/** Returns the identifiers of the nodes above and at an identifier: "/a/b" gives "/a" and "/a/b". */
export function steps(id) {
  const parts = id.split('/').slice(1);
  return parts.map((_, i) => '/' + parts.slice(0, i + 1).join('/'));
}

/** Returns the nodes of a config: types, resources, and their fields. `sources` is null or a function. */
export function configNodes(xds, sources) {
  return Object.entries(xds).map(([url, resources]) => {
    const id = '/' + escape(url);
    return {id, label: typeName(url), text: plural(Object.keys(resources).length, 'resource'),
      children: () => Object.entries(resources).map(([key, value]) => {
        const by = sources && (path => sources(url, key, path));
        return {id: `${id}/${escape(key)}`, label: key, text: summary(value), note: () => note(by?.('')),
          children: () => valueNodes(value, `${id}/${escape(key)}`, '', by)};
      })};
  });
}

/**
 * Searches keys and values. Returns `{hits: [{id, text}], more}`, at most MOST_HITS; `more` says whether
 * there are more.
 */
export function search(xds, wanted) {
  wanted = wanted.toLowerCase();
  const hits = [];
  let more = false;
  const walk = (value, id, text) => {
    for (const [key, v] of Object.entries(value)) {
      if (more) return;
      const at = `${id}/${escape(key)}`, branch = isBranch(v);
      const label = Array.isArray(value) ? `[${v?.name || key}]` : key;
      const where = text ? `${text} › ${label}` : typeName(label);
      const leaf = branch ? '' : JSON.stringify(v);
      if (label.toLowerCase().includes(wanted) || leaf.toLowerCase().includes(wanted)) {
        if (hits.length === MOST_HITS) {
          more = true;
          return;
        }
        hits.push({id: at, text: leaf ? `${where}: ${leaf}` : where});
      }
      if (branch) walk(v, at, where);
    }
  };
  walk(xds, '', '');
  return {hits, more};
}

/** Returns the list of the matches of a search. */
export function hitList({hits, more}, chosen) {
  return h('ul', {class: 'hits', 'aria-label': 'Matches'}, hits.map(hit => h('li', null,
    h('button', {type: 'button', class: 'plain', onclick: () => chosen(hit.id)}, name(hit.text, 200)))),
  more ? h('li', {class: 'quiet'}, `Only the first ${MOST_HITS} matches; write more of the text.`) : null);
}
