// The history of all resources, or of one, with author and changed fields.

import {get, query} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {key, plural} from '../core/format.js';
import {keep, link, resource} from '../core/route.js';
import {empty, failure, field, head} from '../core/widgets.js';
import {revisions} from '../parts/history.js';
import {fileOf, historyPath, kindOf, kinds} from '../parts/kinds.js';
import {resourceOf} from '../parts/names.js';
import {instead, readOnly, rollback} from '../parts/write.js';

const SIZE = 100;

/** Renders the view. Parameters: `type`, `mesh`, `name`, `author`, `source`, and `since`. */
export async function render(root, ctx) {
  const wanted = await resourceOf(ctx.params);
  if (wanted.type && wanted.name) return one(root, ctx, wanted);
  const chosen = Object.fromEntries(['type', 'mesh', 'author', 'source',
    'since'].map(k => [k, ctx.params.get(k) || '']));
  const body = h('div');
  let items = [], total = 0, size = SIZE;
  const read = async () => {
    const answer = await get(query('/v1/history', {...chosen, size}), ctx.signal);
    ({items, total} = answer);
    draw();
  };
  const draw = () => refresh(body, h('p', {class: 'quiet'}, plural(total, 'revision')), revisions(items, {
    empty: empty(Object.values(chosen).some(Boolean) ? 'No revision fits the filters.'
      : 'Nothing has changed yet.')}),
  items.length < total && items.length < 10000 ? h('div', {class: 'more'},
    h('button', {type: 'button', onclick: () => {
    size = Math.min(10000, size + 500);
    again();
  }}, `Show more (${plural(total - items.length, 'revision')} left)`)) : null);
  const again = () => read().catch(err => {
    if (err.name === 'AbortError') return;
    replace(body, err.status !== 404 ? failure(err, again)
      : empty('This agent only has histories of single resources.',
      h('p', null, h('a', {href: link('policies')}, 'Choose a resource'))));
  });
  let timer = 0;
  const change = what => e => {
    chosen[what] = e.target.value.trim();
    keep(chosen);
    clearTimeout(timer);
    timer = setTimeout(again, 250);
  };
  const select = h('select', {onchange: change('type')}, h('option', {value: ''}, 'All kinds'),
    (await kinds()).map(k => h('option', {value: k.kind}, k.kind)));
  select.value = chosen.type;
  const text = (what, placeholder) => h('input', {value: chosen[what], placeholder, oninput: change(what)});
  const since = h('select', {onchange: change('since')}, [['', 'Any time'], ['1h', 'The last hour'],
    ['24h', 'The last day'],
    ['168h', 'The last week']].map(([value, title]) => h('option', {value}, title)));
  since.value = chosen.since;
  root.append(head('History', 'Every change of a resource, newest first.',
    h('a', {href: link('change')}, 'Make a change')),
    h('div', {class: 'panel'}, h('div', {class: 'row filters'}, field('Kind', select), field('Mesh', text('mesh')),
      field('Author', text('author', 'the exact name')), field('Source', text('source', 'api, or file')),
        field('Time', since)), body));
  await again();
  ctx.live(['change'], read, 500);
}

async function one(root, ctx, r) {
  const kind = await kindOf(r.type);
  if (!kind) throw new Error(`there is no kind "${r.type}"`);
  const body = h('div'), result = h('div', {'aria-live': 'polite'}), mesh = r.mesh ? ` -m ${r.mesh}` : '';
  const read = async () => {
    const answer = await get(historyPath(kind, r), ctx.signal);
    const items = answer.items.toReversed().map(i => ({...i, type: kind.kind, mesh: r.mesh, name: r.name}));
    const file = fileOf(items[0]?.source);
    refresh(body, file ? h('p', {class: 'quiet'}, 'The resource is in the file ', name(file, 200),
      '; edit that file to change it.') : null,
      file ? null : instead(ctx.session, `nearside rollback ${kind.plural} ${r.name}${mesh} --to REVISION`),
      revisions(items, {single: true, restore: i => i.revision === items[0].revision || !i.resource || file ? null
        : restore(i), empty: empty('No revision of this resource is known.')}));
  };
  const restore = i => h('span', {class: 'row'},
    h('a', {href: link('change', {type: kind.kind, mesh: r.mesh, name: r.name, revision: i.revision})}, 'Open'),
    h('button', {type: 'button', disabled: Boolean(readOnly(ctx.session)), title: readOnly(ctx.session) || null,
      'aria-label': `Restore revision ${i.revision}`, onclick: async e => {
        e.target.disabled = true;
        await rollback(result, r, i.revision, {signal: ctx.signal});
        await read();
      }}, 'Restore'));
  root.append(head(['History of ', name(key(r))], '', h('a', {href: resource(r)}, 'The resource'),
    h('a', {href: link('history')},
    'All changes')), result, h('div', {class: 'panel'}, body));
  await read();
  ctx.live(['change'], read, 500);
}
