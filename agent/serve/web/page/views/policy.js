// One resource: its content, where it is in force, what overrides it, and its conflicts.

import {get, path, query, send} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {key, plural} from '../core/format.js';
import {keep, link} from '../core/route.js';
import {badge, command, empty, failure, head, panel, table, when} from '../core/widgets.js';
import {diff, lazy} from '../parts/diff.js';
import {details, effect, explain, overriding} from '../parts/effects.js';
import {address, author, origin} from '../parts/history.js';
import {fileOf, kindOf, resourcePath} from '../parts/kinds.js';
import {resourceOf} from '../parts/names.js';
import {applied} from '../parts/wait.js';
import {instead, readOnly, remove} from '../parts/write.js';
import {toYAML} from '../parts/yaml.js';

const EXAMINED = 20; // proxies at a time

/** Renders the view. Parameters: `type`, `mesh`, `name`, and `dataplane` to show the effect on it. */
export async function render(root, ctx) {
  const wanted = await resourceOf(ctx.params);
  const kind = await kindOf(wanted.type);
  if (!kind) throw new Error(`there is no kind "${wanted.type}"; choose one below Policies`);
  const r = {type: kind.kind, mesh: kind.global ? '' : wanted.mesh, name: wanted.name};
  const top = h('div'), force = h('div'), content = h('div'), selected = h('div'), lost = h('div'),
    result = h('div', {'aria-live': 'polite'});
  let item;

  async function read() {
    const [list, state] = await Promise.all([get(query(kind.global ? path`/${kind.plural}`
      : path`/meshes/${r.mesh}/${kind.plural}`,
      {meta: true, size: 10000}), ctx.signal), get(query(path`/v1/applied/${kind.plural}`,
        {mesh: r.mesh, name: r.name}), ctx.signal)
      .catch(err => ({items: [], err}))]);
    item = list.items.find(i => i.resource.name === r.name);
    if (!item) return replace(top, head(name(key(r)), 'This resource does not exist.',
      h('a', {href: address(r)}, 'Its history'),
      h('a', {href: link('change', {kind: kind.kind, mesh: r.mesh})}, `New ${kind.kind}`)));
    drawTop(state.items[0]);
    refresh(force, inForce(state.items[0], kind));
    refresh(content, resourcePanel());
  }

  function drawTop(s) {
    const shadow = item.resource.labels?.['kuma.io/effect'] === 'shadow';
    refresh(top, head([kind.kind, ' ', name(r.name)], [r.mesh
      ? ['mesh ', h('a', {href: link('policy', {type: 'Mesh', name: r.mesh})}, name(r.mesh)), ' · ']
      : null, s ? applied(s.state) : null, shadow ? [' ', badge('info', 'shadow')] : null, s?.effect
        ? [' ', effect(s.effect)] : null],
    kind.kind === 'Dataplane' ? h('a', {href: link('proxy', {mesh: r.mesh, name: r.name})}, 'Proxy') : null,
    h('a', {href: link('change', r)}, 'Change'), h('a', {href: address(r)}, 'History'), deletion()));
  }

  function deletion() {
    const file = fileOf(item.meta.source), why = file ? `Remove it from the file ${file}.` : readOnly(ctx.session);
    return h('button', {type: 'button', class: 'danger', id: 'delete', disabled: Boolean(why), title: why || null,
      onclick: ask}, 'Delete…');
  }

  // A deletion shows its effect first.
  async function ask() {
    replace(result, h('p', {class: 'quiet', role: 'status'}, 'Computing the effect…'));
    try {
      const answer = await send('POST', query('/v1/diff', {delete: key(r), omit: 'patch'}), undefined,
        {signal: ctx.signal});
      const yes = h('button', {type: 'button', class: 'danger', onclick: async () => {
        if (await remove(result, r, {etag: item.meta.etag, signal: ctx.signal})) await read();
      }}, `Delete ${kind.kind} ${r.name.slice(0, 60)}`);
      replace(result, h('div', {class: 'actions'}, yes, h('button', {type: 'button', onclick: () => {
        replace(result);
        document.getElementById('delete')?.focus();
      }}, 'Keep it')), diff(answer));
      yes.focus();
    } catch (err) {
      if (err.name !== 'AbortError') replace(result, failure(err, ask));
    }
  }

  function resourcePanel() {
    const m = item.meta, {creationTime, modificationTime, ...rest} = item.resource;
    const rows = [['Revision', String(m.revision)], ['Source', origin(m)], ['Author', author(m)], m.commit
      ? ['Commit', name(m.commit)] : null,
      ['Created', when(m.created || creationTime)], ['Changed',
        when(m.modified || modificationTime)]].filter(Boolean);
    return panel('Resource', null, h('dl', null, rows.map(([k, v]) => [h('dt', null, k), h('dd', null, v)])),
      fileOf(m.source) ? h('p', {class: 'quiet'}, 'Managed by the file ', name(fileOf(m.source), 200))
        : instead(ctx.session, `nearside edit ${kind.plural} ${r.name}`),
      h('pre', {tabindex: '0', 'aria-label': 'The resource as YAML'}, name(toYAML(rest), 100000)));
  }

  root.append(top, result, h('div', {class: 'columns'}, force, content), selected, lost);
  await read();
  if (!item) return;
  ctx.live(['change', 'ack', 'nack'], read, 1000);
  if (kind.policy) await selection(selected, kind, r, ctx).catch(err => err.name === 'AbortError' ||
    replace(selected, failure(err)));
  conflicts(lost, r, ctx).catch(() => replace(lost)); // without permission for the pool
}

function inForce(s, kind) {
  if (!s) return null;
  const list = (title, items, total, color) => items?.length ? [h('h3', null, title),
    h('ul', null, items.slice(0, 20).map(x =>
    h('li', {class: color}, h('a', {href: link('proxy', {mesh: x.mesh, name: x.name})}, name(`${x.mesh}/${x.name}`)),
      ': ',
      x.resource ? [name(x.resource), ': '] : null, name(x.reason, 500))), total > 20
        ? h('li', {class: 'quiet'}, `and ${total - 20} more`) : null)] : null;
  return panel('In force', null, h('p', null, applied(s.state), ' ', s.effect ? [effect(s.effect), ' '] : null,
    s.reason ? name(s.reason, 500) : null),
    h('dl', null, kind.policy ? [h('dt', null, 'Selects'), h('dd', null, plural(s.selected || 0, 'dataplane'))]
      : null,
      h('dt', null, 'Acknowledged'),
        h('dd', null, s.proxies ? `by ${s.acknowledged} of ${plural(s.proxies, 'connected proxy', 'connected proxies')}`
        : 'no connected proxy is affected')),
    s.warnings?.length ? [h('h3', null, 'Warnings'), h('ul', null,
      s.warnings.slice(0, 20).map(w => h('li', {class: 'warn'}, name(w, 600))))] : null,
    list('Late', s.late, s.lateTotal, ''), list('Rejected', s.rejected, s.rejectedTotal, 'bad'),
    s.old?.length ? h('p', {class: 'quiet'},
      'Connections opened before the change may use the previous filters; the last ends ', when(s.oldUntil), '.')
      : null);
}

async function selection(el, kind, r, ctx) {
  const {items, total} = await get(resourcePath(kind, r) + '/dataplanes', ctx.signal);
  const names = items.map(i => i.dataplane.name), wanted = ctx.params.get('dataplane');
  const answers = new Map(), body = h('div'), note = h('p', {class: 'quiet', role: 'status'});
  const draw = () => {
    const rows = names.filter(n => n.toLowerCase().includes(box.value.trim().toLowerCase()));
    refresh(body, table([
      {title: 'Dataplane', value: n => n, cell: n => h('a', {href: link('proxy',
        {mesh: r.mesh, name: n, tab: 'policies'}), dataset: {key: `a:${n}`}}, name(n))},
      {title: 'In force', value: n => answers.get(n)?.effect || '', cell: n => answers.has(n)
        ? effect(answers.get(n).effect, overriding(answers.get(n)).length)
          : h('span', {class: 'quiet'}, 'not examined')},
      {title: 'Overridden by', cell: n => answers.has(n) ? overriding(answers.get(n)).slice(0,
        4).map((p, i) => [i ? ', ' : '',
        h('a', {href: link('policy', p)}, name(`${p.type}/${p.name}`))]) : '–'},
      {title: 'Fields', cell: n => answers.has(n) ? lazy('Show', () => details(answers.get(n)), n === wanted) : '–'},
    ], rows, {key: n => n, caption: `${plural(total, 'dataplane')}`, empty: empty('No dataplane fits the search.')}));
  };
  const examine = async list => {
    for (const n of list) {
      replace(note, `Examining ${n}…`);
      answers.set(n, await explain(r, n, ctx.signal));
      draw();
    }
    const left = names.filter(n => !answers.has(n));
    const met = new Map([...answers.values()].flatMap(overriding).map(p => [key(p), p]));
    replace(note, met.size ? ['Overridden in part by ', [...met.values()].slice(0, 10).map((p, i) => [i ? ', ' : '',
      h('a', {href: link('policy', p)}, name(key(p)))]), '. '] : answers.size
        ? 'Nothing overrides it on the examined dataplanes. ' : '',
    left.length ? h('button', {type: 'button', onclick: () => examine(left.slice(0, EXAMINED)).catch(failed)},
      `Examine ${Math.min(left.length, EXAMINED)} more`) : null);
  };
  const failed = err => err.name === 'AbortError' || replace(note, failure(err));
  const box = h('input', {type: 'search', 'aria-label': 'Search dataplanes', placeholder: 'part of a name',
    oninput: () => {
    keep({q: box.value});
    draw();
  }});
  box.value = ctx.params.get('q') || '';
  if (!names.length) {
    replace(el, panel('Dataplanes that it selects', null,
      empty('It selects no dataplane. Compare its targetRef with the tags of the dataplanes.',
      h('p', null, h('a', {href: link('change', r)}, 'Change it')))));
    return;
  }
  replace(el, panel('Dataplanes that it selects', null, names.length > 10 ? h('div', {class: 'row filters'}, box)
    : null, note, body));
  draw();
  await examine(wanted && names.includes(wanted) ? [wanted] : names.slice(0,
    Math.min(names.length, 8))).catch(failed);
}

async function conflicts(el, r, ctx) {
  const {items} = await get('/v1/conflicts', ctx.signal);
  const mine = items.filter(c => c.type === r.type && (c.mesh || '') === r.mesh && c.name === r.name);
  if (!mine.length) return;
  replace(el, panel('Conflicts', null, h('p', null, 'These versions lost to a concurrent write.'), table([
    {title: 'Written', cell: c => when(c.written)}, {title: 'Node', cell: c => name(c.node)},
      {title: 'State', cell: c => badge('warn', c.state)},
    {title: 'Content', cell: c => c.deleted ? 'deleted' : c.resource
      ? lazy('Show', () => h('pre', {tabindex: '0'}, name(toYAML(c.resource), 20000))) : '–'},
    {title: 'Restore', cell: c => c.reason ? name(c.reason, 300) : command(`nearside conflicts restore ${c.id}`)},
  ], mine)));
}
