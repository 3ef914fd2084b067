// Revisions of resources, with author and fields, and the way back.

import {h, name} from '../core/dom.js';
import {key, plural} from '../core/format.js';
import {link, resource} from '../core/route.js';
import {badge, table, when} from '../core/widgets.js';
import {action, fields, lazy} from './diff.js';
import {fileOf} from './kinds.js';

/** Returns who made a revision. */
export function author(item) {
  const by = item.signedBy;
  return [name(item.author || by?.name || '–', 60), by?.key || by?.node
    ? [' ', badge(by.verified ? 'ok' : 'warn', by.verified ? 'signed'
    : 'not verified')] : null];
}

/** Returns where a revision comes from: the API, or a file. */
export const origin = item => fileOf(item.source) ? h('span', {title: fileOf(item.source)}, 'file ',
  name(fileOf(item.source).split('/').at(-1), 40)) : name(item.source || '–', 60);

/** Returns a table of revisions, newest first. `restore(item)` returns the control that restores one, or null. */
export function revisions(items, {restore, single, empty} = {}) {
  return table([
    {title: 'When', cell: i => when(i.time)},
    single ? null : {title: 'Resource', value: key, cell: i => h('a', {href: resource(i)}, name(key(i), 90))},
    {title: 'Change', value: i => i.action, cell: i => [action(i.action), ' ',
      h('span', {class: 'quiet'}, `revision ${i.revision}`)]},
    {title: 'Author', value: i => i.author || '', cell: author},
    {title: 'Source', value: i => i.source, cell: origin},
    {title: 'Fields', cell: i => i.fields?.length ? i.fields.length <= 2 ? fields(i.fields)
      : lazy(plural(i.fields.length, 'field'), () => fields(i.fields, 100)) : '–'},
    restore ? {title: 'Restore', cell: restore} : null,
  ].filter(Boolean), items, {key: i => `${key(i)}@${i.revision}`, empty});
}

/** Returns the address of the history of a resource. */
export const address = r => link('history', {type: r.type, mesh: r.mesh, name: r.name});
