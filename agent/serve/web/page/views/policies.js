// Policies and other resources of each kind, and how far they are in force.

import {get, path} from '../core/api.js';
import {h, name, refresh, replace} from '../core/dom.js';
import {key, plural} from '../core/format.js';
import {keep, link, resource} from '../core/route.js';
import {badge, empty, field, head, table} from '../core/widgets.js';
import {effect} from '../parts/effects.js';
import {kinds} from '../parts/kinds.js';
import {applied} from '../parts/wait.js';

/** Renders the view. Parameters: `type` (a kind; all policies without it), `q`, `mesh`, and `state`. */
export async function render(root, ctx) {
  const all = await kinds();
  const type = ctx.params.get('type') || '';
  const chosen = {q: ctx.params.get('q') || '', mesh: ctx.params.get('mesh') || '', state: ctx.params.get('state') ||
    ''};
  let counts = {}, items = [];
  const list = h('ul', {class: 'kinds'}), more = h('details', {class: 'more-kinds'}), body = h('div'),
    search = h('input',
    {type: 'search', value: chosen.q, placeholder: 'part of a name',
    oninput: change('q')}), meshes = h('select', {onchange: change('mesh')}),
      states = h('select', {onchange: change('state')});

  function change(what) {
    return e => {
      chosen[what] = e.target.value;
      keep({[what]: chosen[what]});
      draw();
    };
  }

  // Shows the kinds as their answers come, because some take long in a large mesh.
  async function read() {
    const first = !items.length, found = new Map();
    const others = get('/v1/status', ctx.signal).then(status => {
      counts = status.store.resources;
      if (first && found.size) draw();
    });
    const wanted = all.filter(k => type ? k.kind === type : k.policy && (first || counts[k.kind]));
    const show = () => {
      items = wanted.flatMap(k => found.get(k.kind) || []);
      draw();
    };
    await each(wanted, 4, async k => {
      const list = (await get(path`/v1/applied/${k.plural}`, ctx.signal)).items.filter(i => i.state !== 'gone');
      found.set(k.kind, list);
      if (first) counts[k.kind] ||= list.length;
      if (first && list.length) show();
    });
    await others;
    show();
  }

  function options(select, first, values, value) {
    replace(select, h('option', {value: ''}, first), [...new Set([...values,
      value].filter(Boolean))].sort().map(v => h('option', {value: v}, v)));
    select.value = value;
  }

  function draw() {
    const policies = all.filter(k => k.policy && (!k.legacy || counts[k.kind])),
      others = all.filter(k => !k.policy && counts[k.kind]);
    const sum = all.filter(k => k.policy).reduce((n, k) => n + (counts[k.kind] || 0), 0);
    const chip = (id, title, n) => h('li', null, h('a', {href: link('policies', {type: id}),
      'aria-current': id === type ? 'page' : null,
      class: n ? '' : 'quiet', dataset: {key: `kind:${id}`}}, title, h('span', {class: 'quiet'}, ` ${n}`)));
    const shown = [...policies, ...others].filter(k => counts[k.kind] || k.kind === type);
    const rest = policies.filter(k => !shown.includes(k));
    refresh(list, chip('', 'All policies', sum), shown.map(k => chip(k.kind, k.kind, counts[k.kind] || 0)));
    replace(more, rest.length ? [h('summary', null, `Kinds without resources (${rest.length})`),
      h('ul', {class: 'kinds'}, rest.map(k => chip(k.kind, k.kind, 0)))] : null);
    options(meshes, 'All meshes', items.map(i => i.mesh), chosen.mesh);
    options(states, 'All states', items.map(i => i.state), chosen.state);
    const wanted = chosen.q.toLowerCase();
    const rows = items.filter(i => (!chosen.mesh || i.mesh === chosen.mesh) &&
      (!chosen.state || i.state === chosen.state) &&
      (!wanted || key(i).toLowerCase().includes(wanted)));
    if (!items.length) {
      return replace(body, empty(type ? `There is no ${type} yet.` : 'There is no policy yet.',
        h('p', null, h('a', {href: link('change', {kind: type})}, type ? `Write a ${type}` : 'Write a policy'))));
    }
    const ofPolicy = rows.some(i => i.selected !== undefined || i.effect);
    refresh(body, table([
      {title: 'Resource', value: key, cell: i => h('a', {href: resource(i), dataset: {key: `a:${key(i)}`}},
        type ? name(i.name) : [i.type, '/', name(i.name)])},
      {title: 'Mesh', value: i => i.mesh || '', cell: i => name(i.mesh || '–', 40)},
      {title: 'State', value: i => i.state, cell: i => applied(i.state)},
      ofPolicy ? {title: 'In force', value: i => i.effect || '', cell: i => i.effect ? effect(i.effect) : '–'} : null,
      ofPolicy ? {title: 'Selects', class: 'number', value: i => i.selected || 0,
        cell: i => String(i.selected || 0)} : null,
      {title: 'Acknowledged', class: 'number', value: i => i.proxies - i.acknowledged,
        cell: i => `${i.acknowledged} of ${i.proxies}`},
      {title: 'Revision', class: 'number', value: i => i.revision, cell: i => String(i.revision)},
      {title: 'Remarks', cell: remarks},
    ].filter(Boolean), rows, {key, caption: plural(rows.length, 'resource'),
      empty: empty('No resource fits the filters.')}));
  }

  root.append(head('Policies', 'What each resource does, and where it is in force.',
    h('a', {href: link('change', {kind: type})}, type ? `New ${type}` : 'New resource'),
      h('a', {href: link('history')}, 'History')),
  h('nav', {'aria-label': 'Kinds'}, list, more), h('div', {class: 'panel'},
    h('div', {class: 'row filters'}, field('Search', search),
    field('Mesh', meshes), field('State', states)), body));
  await read();
  ctx.live(['change', 'ack', 'nack', 'proxy'], read, 500);
}

// Calls a function for each item, with at most `most` calls at a time.
async function each(list, most, f) {
  const left = [...list];
  await Promise.all(Array.from({length: most}, async () => {
    while (left.length) await f(left.shift());
  }));
}

function remarks(i) {
  const list = [i.reason && name(i.reason, 200), ...(i.warnings || []).slice(0,
    2).map(w => h('span', {class: 'warn'}, name(w, 200))),
    i.rejectedTotal ? badge('bad', `rejected on ${i.rejectedTotal}`) : null, i.lateTotal
      ? badge('warn', `late on ${i.lateTotal}`) : null].filter(Boolean);
  return list.length ? list.map((x, n) => [n ? h('br') : null, x]) : '–';
}
