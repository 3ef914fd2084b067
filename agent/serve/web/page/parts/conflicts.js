// Versions of resources that lost to a concurrent write, and how to restore one.

import {send} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {key, isTime} from '../core/format.js';
import {badge, command, failure, panel, resourceLink, table, when} from '../core/widgets.js';

const STATE = {
  lost: ['warn', 'lost', 'a concurrent write of another node was later'],
  limbo: ['warn', 'uncertain', 'a node that was away has it, and it may have been deleted meanwhile'],
  held: ['info', 'waits', 'the deletion waits until the mesh is empty'],
};

/** Returns the panel of conflicts. */
export function conflicts(answer, {ctx, all, set, load, pool}) {
  if (answer.error) {
    return panel('Conflicts', null, answer.error.status === 403 ? failure(answer.error)
      : h('p', {class: 'quiet'}, 'A node without a pool has no conflicts.'));
  }
  if (!pool && !answer.items.length) return null;
  const everywhere = h('input', {type: 'checkbox', id: 'conflicts-all', checked: Boolean(all),
    onchange: e => set({all: e.target.checked ? 'true' : ''})});
  const silent = answer.unanswered || [];
  return panel('Conflicts', {id: 'conflicts'},
    h('p', {class: 'quiet'}, 'Two nodes changed the same resource at the same time. The later change is in force; ' +
      'the other one is here.'),
    h('p', null, everywhere, ' ', h('label', {for: 'conflicts-all'}, 'Ask all nodes, not only this one')),
    silent.length ? h('div', {class: 'notice warn'}, 'These nodes did not answer: ',
      silent.map((n, i) => [i ? ', ' : '', name(n.name, 40), n.reason ? ` (${n.reason})` : ''])) : null,
    table([
      {title: 'Resource', value: c => key(c), cell: c => resourceLink(c)},
      {title: 'State', value: c => c.state, cell: state},
      {title: 'Written', value: c => c.written, cell: c => when(c.written)},
      {title: 'By', value: c => c.author?.name || c.node,
        cell: c => h('span', null, author(c), c.author?.name ? ' on ' : '', name(c.node, 40))},
      {title: 'Found', value: c => c.seen || '', cell: c => isTime(c.seen) ? when(c.seen) : 'unknown'},
      {title: 'Restore', cell: c => restore(c, ctx, load)},
    ], answer.items, {key: c => c.id, empty: h('p', {class: 'quiet'}, all ? 'No node has a conflict.'
      : 'This node has no conflicts.')}));
}

function state(c) {
  const [color, word, meaning] = STATE[c.state] || ['off', c.state, ''];
  return h('span', null, badge(color, word), ' ', c.deleted ? 'a deletion; ' : '',
    h('span', {class: 'quiet'}, meaning));
}

function author(c) {
  if (!c.author?.name && !c.author?.key) return null;
  return h('span', null, name(c.author.name || c.author.key, 60), c.author.verified ? '' : ' (not verified)');
}

/** Returns the control that writes the version of a conflict again: first a dry run, then the write. */
function restore(c, ctx, load) {
  const shown = h('details', null, h('summary', null, 'Its content'),
    c.resource ? h('pre', null, name(JSON.stringify(c.resource, null, 2), 20000))
      : command(`nearside conflicts show ${c.id}`));
  if (c.reason) return h('div', null, h('p', null, name(c.reason, 300)), shown);
  if (!ctx.session.write) return h('div', null, command(`nearside conflicts restore ${c.id}`), shown);
  const said = h('div', {role: 'status'});
  const ask = async dryRun => {
    button.disabled = true;
    try {
      await send('POST', '/v1/conflicts/restore', {id: c.id, dryRun});
      if (!dryRun) return load();
      replace(said, h('p', {class: 'good'}, 'The dry run accepted this version. It replaces the current one.'),
        h('button', {type: 'button', class: 'danger', onclick: () => ask(false)}, 'Restore it now'));
    } catch (err) {
      replace(said, failure(err));
    }
    button.disabled = false;
  };
  const button = h('button', {type: 'button', onclick: () => ask(true)}, 'Restore…');
  return h('div', null, button, said, shown);
}
