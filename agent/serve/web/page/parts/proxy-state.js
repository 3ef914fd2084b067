// States of proxies, as words with a color.

import {get, path} from '../core/api.js';
import {badge} from '../core/widgets.js';

/** The states of proxies, worst first: the color, and what they mean. */
export const STATES = {
  refused: ['bad', 'The agent refuses its xDS stream.'],
  rejected: ['bad', 'Envoy rejected something, and keeps its previous config.'],
  unknown: ['bad', 'A client requests a Dataplane that does not exist.'],
  stale: ['warn', 'It keeps an older config, because no new one can be computed.'],
  pending: ['warn', 'The answer to a config is outstanding.'],
  disconnected: ['off', 'The Dataplane exists, but has no client on this node.'],
  elsewhere: ['off', 'Another node of the pool serves it.'],
  synced: ['ok', 'Everything is sent and acknowledged.'],
};

/** Returns the state of a proxy as a word. */
export function state(text) {
  const [color, title] = STATES[text] || ['info', ''];
  const el = badge(color, text);
  el.title = title;
  return el;
}

/** The rank of a state: the worst is 0. */
export const rank = text => {
  const at = Object.keys(STATES).indexOf(text);
  return at < 0 ? 2 : at;
};

const ZONES = {ZoneEgress: 'zoneegresses', ZoneIngress: 'zoneingresses', egress: 'zoneegresses',
  ingress: 'zoneingresses'};

/** The kind of a proxy: Dataplane, ZoneEgress, or ZoneIngress. */
export const kindOfProxy = p => ({egress: 'ZoneEgress', ingress: 'ZoneIngress'})[p.type] || p.type || 'Dataplane';

/** Returns the paths of a proxy in the API: of its documents, and of its resource. */
export function paths({kind, mesh, name}) {
  const plural = ZONES[kind];
  if (plural) return {own: path`/v1/${plural}/${name}`, resource: path`/${plural}/${name}`};
  return {own: path`/v1/dataplanes/${mesh}/${name}`, resource: path`/meshes/${mesh}/dataplanes/${name}`};
}

/** Reads the state of a proxy. */
export const status = (proxy, signal) => get(paths(proxy).own + '/status', signal);
