// One proxy: its state, config, policies, services, and its Envoy.

import {h, name, refresh} from '../core/dom.js';
import {keep, link} from '../core/route.js';
import {command, head, tabs} from '../core/widgets.js';
import {state, status} from '../parts/proxy-state.js';
import {proxyOf} from '../parts/names.js';
import * as config from '../parts/proxy-config.js';
import * as envoy from '../parts/proxy-envoy.js';
import * as policies from '../parts/proxy-policies.js';
import * as overview from '../parts/proxy-overview.js';

/** Renders the view. Parameters: `mesh` and `name`, or `kind` and `name` of a zone proxy, and `tab`. */
export async function render(root, ctx) {
  const proxy = await proxyOf(ctx.params, ctx.signal);
  if (!proxy.name) {
    root.append(head('Proxy', 'The address names no proxy.'),
      h('p', null, h('a', {href: link('proxies')}, 'All proxies')));
    return;
  }
  const zone = proxy.kind !== 'Dataplane', live = ctx.session.mode === 'agent';
  let current = await status(proxy, ctx.signal);
  const top = h('div'), body = {};
  const drawTop = () => refresh(top, head([zone ? proxy.kind + ' ' : '', name(proxy.name)],
    [zone ? null : ['mesh ', h('a', {href: link('policy', {type: 'Mesh', name: proxy.mesh})}, name(proxy.mesh)),
      ' · '],
      state(current.state), current.reason ? [' ', name(current.reason, 400)] : null],
    zone || !current.dataplane ? null : h('a', {href: link('policy',
      {type: 'Dataplane', mesh: proxy.mesh, name: proxy.name})}, 'Resource'),
    zone ? null : h('a', {href: link('why', {from: proxy.name, mesh: proxy.mesh})}, 'Why can it reach…?')));
  drawTop();
  const part = {proxy, zone, ctx, status: () => current};
  const list = [
    {id: 'state', title: 'State', render: el => overview.render(el, part, body)},
    {id: 'config', title: 'Config', render: el => config.render(el, part)},
    zone ? null : {id: 'policies', title: 'Policies', render: el => policies.render(el, part)},
    zone ? null : {id: 'rules', title: 'Rules', render: el => policies.rules(el, part)},
    zone ? null : {id: 'services', title: 'Services', render: el => policies.services(el, part)},
    !live ? null : {id: 'clusters', title: 'Clusters', render: el => envoy.clusters(el, part)},
    !live ? null : {id: 'stats', title: 'Statistics', render: el => envoy.stats(el, part)},
    zone || !live ? null : {id: 'log', title: 'Log', render: el => envoy.log(el, part)},
  ].filter(Boolean);
  let tab = ctx.params.get('tab') || 'state';
  root.append(top, tabs(list, tab, id => {
    body.draw = null;
    envoy.stop(part);
    if (id !== tab) keep({tab: id, q: '', at: ''});
    else keep({tab: id});
    tab = id;
  }, 'Parts of the proxy'));
  if (current.state === 'disconnected' && !zone && live) {
    root.insertBefore(h('p', {class: 'notice'}, 'Start its Envoy on this node: ',
      command(`nearside bootstrap --mesh ${proxy.mesh} --name ${proxy.name}`)), root.children[1]);
  }
  ctx.atEnd(() => envoy.stop(part));
  const mine = d => d && d.name === proxy.name && (zone || d.mesh === proxy.mesh);
  let dirty = false;
  ctx.on(['proxy', 'ack', 'nack', 'hello', 'lost', 'change'], e => {
    if (mine(e.data) || e.type === 'hello' || e.type === 'lost' || e.type === 'change') dirty = true;
  });
  ctx.live(['proxy', 'ack', 'nack', 'change'], async () => {
    if (!dirty) return;
    dirty = false;
    current = await status(proxy, ctx.signal);
    drawTop();
    body.draw?.();
  }, 500);
}
