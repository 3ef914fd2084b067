// Policies, rules, and services of a proxy.

import {get, path, query} from '../core/api.js';
import {h, name, replace} from '../core/dom.js';
import {plural} from '../core/format.js';
import {current, keep, link} from '../core/route.js';
import {badge, command, empty, field, panel, resourceLink, source, table} from '../core/widgets.js';
import {effect} from './effects.js';
import {tree} from './tree.js';
import {valueNodes} from './config-tree.js';

const own = part => path`/v1/dataplanes/${part.proxy.mesh}/${part.proxy.name}`;

/** Renders the policies that select the proxy. */
export async function render(el, part) {
  const answer = await get(own(part) + '/policies', part.ctx.signal);
  const address = p => link('policy', {type: p.type, mesh: p.mesh, name: p.name, dataplane: part.proxy.name});
  replace(el, panel('Policies that select this proxy', null, table([
    {title: 'Policy', value: p => `${p.type}/${p.name}`, cell: p => [h('a', {href: address(p)},
      name(`${p.type}/${p.name}`)),
      p.shadow ? [' ', badge('info', 'shadow')] : null, p.legacy ? [' ', badge('off', 'legacy')] : null]},
    {title: 'In force', value: p => p.effect, cell: p => effect(p.effect, p.by?.length)},
    {title: 'Selected because', cell: p => name(p.reason, 200)},
    {title: 'Acts on', cell: acts},
    {title: 'Warnings', cell: p => p.warnings.length ? h('ul', null,
      p.warnings.slice(0, 5).map(w => h('li', {class: 'warn'}, name(w, 400)))) : '–'},
  ], answer.items, {key: p => `${p.type}/${p.name}`, empty: empty('No policy selects this proxy.',
    h('p', null, h('a', {href: link('change', {mesh: part.proxy.mesh})}, 'Write a policy')))})), reach(answer.reach));
}

function acts(p) {
  const list = [p.inbounds?.length ? `inbound ${p.inbounds.map(i => i.port).join(', ')}` : '',
    p.outbounds?.length ? `outbound ${p.outbounds.slice(0, 5).map(o => o.name).join(', ')}` : '',
    p.outbounds?.length > 5 ? `and ${p.outbounds.length - 5} more` : ''];
  return name(list.filter(Boolean).join('; ') || '–', 200);
}

function reach(r) {
  if (!r) return null;
  return panel('Services it reaches', null, h('p', null, `${r.reachable} of ${plural(r.total, 'service')}`),
    h('ul', null, r.groups.map(g =>
    h('li', null, badge(g.reachable ? 'ok' : 'off', g.reachable ? 'reached' : 'not reached'),
      ` ${plural(g.count, 'service')}: `,
      name(g.reason, 300), g.examples?.length ? h('span', {class: 'quiet'}, ' (',
        name(g.examples.map(x => x.name).join(', '), 120),
        g.count > g.examples.length ? ', …)' : ')') : null))));
}

/** Renders the merged rules, with the policy and field behind each value. */
export async function rules(el, part) {
  const answer = await get(query(path`/meshes/${part.proxy.mesh}/dataplanes/${part.proxy.name}/_rules`,
    {include: 'fields'}), part.ctx.signal);
  if (!answer.rules.length) {
    replace(el, empty('No policy selects this proxy, so it has no rules.'));
    return;
  }
  replace(el, answer.rules.map(kind => panel(kind.type, null, kind.warnings?.length
    ? h('ul', null, kind.warnings.map(w => h('li', {class: 'warn'}, name(w, 400)))) : null,
  lists(kind).map(([title, list]) => [h('h3', null, title), list.slice(0,
    100).map(rule => one(rule, answer.httpMatches)),
    list.length > 100 ? h('p', {class: 'quiet'}, `and ${list.length - 100} more; read them all with `,
      command(`nearside inspect dataplane ${part.proxy.name} -m ${part.proxy.mesh} --type=rules`)) : null]))));
}

const TITLES = {proxyRule: 'For the proxy', fromRules: 'From', inboundRules: 'Inbound',
  toRules: 'To services of the tag kuma.io/service',
  toResourceRules: 'To service resources', mergedRules: 'Merged'};

function lists(kind) {
  return Object.entries(TITLES).map(([key, title]) => {
    let value = kind[key];
    if (key === 'fromRules') value = (value || []).flatMap(f => f.rules?.map(r => ({...r, inbound: f.inbound})) ||
      [f]);
    return [title, Array.isArray(value) ? value : value ? [value] : []];
  }).filter(([, list]) => list.length);
}

function one(rule, matches) {
  const match = (rule.matchers || []).map(m => {
    const found = m.key === '__rule-matches-hash__' && matches?.find(x => x.hash === m.value);
    return found ? JSON.stringify(found.match) : `${m.key} ${m.not ? 'is not' : 'is'} ${m.value}`;
  });
  const title = [rule.inbound?.port ? `port ${rule.inbound.port}` : '', rule.resourceMeta
    ? [rule.resourceMeta.type, rule.resourceMeta.name, rule.resourceSectionName].filter(Boolean).join(' ') : '',
  ...match]
    .filter(Boolean).join(', ') || 'all';
  const byPath = new Map((rule.fields || []).map(f => [f.path, f]));
  const leaves = rule.fields?.length ? table([
    {title: 'Field', cell: f => h('code', null, name(f.path))},
      {title: 'Value', cell: f => h('code', null, name(JSON.stringify(f.value), 200))},
    {title: 'By', cell: f => f.by.map((p, i) => [i ? ', ' : '', source(p)])},
    {title: 'Overrides', cell: f => f.over.length ? f.over.map((p, i) => [i ? ', ' : '', source(p)]) : '–'},
  ], [...byPath.values()]) : tree('Conf', valueNodes({conf: rule.conf}, '', '', null)).el;
  return h('details', {class: 'item', open: true}, h('summary', null, name(title, 200)), leaves,
    rule.fields?.length ? null : h('p', {class: 'quiet'}, 'From ',
      (rule.origin || []).map((o, i) => [i ? ', ' : '', resourceLink(o.resourceMeta || o)])));
}

const PERMISSION = {allowed: 'ok', denied: 'bad', open: 'off'};

/** Renders every service as the proxy sees it. */
export async function services(el, part) {
  const answer = await get(own(part) + '/backends', part.ctx.signal);
  const body = h('div');
  const draw = () => {
    const wanted = box.value.trim().toLowerCase();
    const rows = answer.items.filter(s => !wanted || [s.name, s.cluster,
      ...(s.hostnames || [])].some(x => x?.toLowerCase().includes(wanted)));
    replace(body, table([
      {title: 'Service', value: s => s.name, cell: s => [name(s.kind && s.kind !== 'ServiceTag'
        ? `${s.kind} ${s.name}` : s.name),
        s.port ? `:${s.port}` : '']},
      {title: 'Reached', value: s => s.reachable ? 0 : 1, cell: s => [badge(s.reachable ? 'ok' : 'off', s.reachable
        ? 'yes' : 'no'), ' ',
        s.policy ? source({...s.policy, field: s.field}) : h('span', {class: 'quiet'}, name(s.reason, 160))]},
      {title: 'Permission', value: s => s.permission, cell: s => [badge(PERMISSION[s.permission] || 'info',
        s.permission), ' ',
        s.permissionBy ? [s.permissionBy].flat().map(p => p.type ? source(p) : name(String(p))) : null]},
      {title: 'Names', cell: s => name((s.hostnames || []).join(', ') || '–', 120)},
      {title: 'Addresses', cell: s => name((s.addresses || []).join(', ') || '–', 120)},
      {title: 'Endpoints', class: 'number', value: s => s.endpoints?.length || 0,
        cell: s => String(s.endpoints?.length || 0)},
      {title: 'Explain', cell: s => h('a', {href: link('why', {mesh: part.proxy.mesh, from: part.proxy.name,
        to: s.addresses?.[0] || s.name})}, 'Why?')},
    ], rows, {caption: `${plural(rows.length, 'service')}`, key: s => s.cluster,
      empty: empty('No service fits the search.')}));
  };
  const box = h('input', {type: 'search', value: current().params.get('q') || '', oninput: () => {
    keep({q: box.value});
    draw();
  }});
  draw();
  replace(el, h('div', {class: 'panel'}, h('div', {class: 'row filters'}, field('Search', box)), body));
}
