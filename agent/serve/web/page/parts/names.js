// Names of resources as nearside prints and accepts them: NAME, MESH/NAME, TYPE/NAME, TYPE/MESH/NAME, and the
// xDS node IDs of proxies: MESH.NAME, .egress.NAME, and .ingress.NAME.

import {get, query} from '../core/api.js';
import {kindOf} from './kinds.js';

const DATAPLANE = ['dataplane', 'dataplanes', 'dp'];
const ZONES = {zoneegress: 'ZoneEgress', zoneegresses: 'ZoneEgress', ze: 'ZoneEgress', '.egress': 'ZoneEgress',
  zoneingress: 'ZoneIngress', zoneingresses: 'ZoneIngress', zi: 'ZoneIngress', '.ingress': 'ZoneIngress'};

/**
 * Splits a name into `{type, mesh, name}`; what it does not have is "". `isKind` decides whether the first of
 * two parts is a kind. No name of a resource has a slash.
 */
export function splitName(text, isKind) {
  const list = text.trim().split('/');
  if (list.length > 3 || list.includes('')) return {type: '', mesh: '', name: text.trim()};
  if (list.length === 3) return {type: list[0], mesh: list[1], name: list[2]};
  if (list.length === 1) return {type: '', mesh: '', name: list[0]};
  return isKind(list[0]) ? {type: list[0], mesh: '', name: list[1]} : {type: '', mesh: list[0], name: list[1]};
}

/** Returns a function that reads the names of the resources of a kind; none if they cannot be read. */
export const namesOf = signal => (kind, mesh) =>
  get(query('/v1/names', {kind, mesh}), signal).then(answer => answer.names);

/**
 * Returns the mesh and the name of a dataplane in any form. `mesh` is the mesh of the view, or "". A node ID is
 * recognized unless the mesh of the view has a dataplane with the whole name. `names` is as of namesOf.
 */
export async function dataplaneName(text, mesh, names) {
  const n = splitName(text, word => DATAPLANE.includes(word.toLowerCase()));
  if (n.type && !DATAPLANE.includes(n.type.toLowerCase())) return {mesh, name: text.trim()};
  if (n.mesh || n.type) return {mesh: n.mesh || mesh, name: n.name};
  const at = n.name.indexOf('.'), of = n.name.slice(0, at), rest = n.name.slice(at + 1);
  if (at <= 0 || !rest || mesh && mesh !== of) return {mesh, name: n.name};
  const list = (kind, of) => names(kind, of).catch(() => []); // without permission, it is a name
  if (!(await list('Mesh', '')).includes(of)) return {mesh, name: n.name};
  if ((await list('Dataplane', mesh || 'default')).includes(n.name)) return {mesh, name: n.name};
  return {mesh: of, name: rest};
}

/** Returns the proxy of an address, `{kind, mesh, name}`, by its parameters `kind`, `mesh`, and `name`. */
export async function proxyOf(params, signal) {
  const text = (params.get('name') || '').trim(), given = params.get('kind') || 'Dataplane';
  const zone = /^([^/]+)\/([^/]+)$/.exec(text) || /^(\.egress|\.ingress)\.(.+)$/.exec(text);
  const kind = zone && ZONES[zone[1].toLowerCase()];
  if (kind) return {kind, mesh: '', name: zone[2]};
  if (given !== 'Dataplane') return {kind: given, mesh: '', name: text};
  const {mesh, name} = await dataplaneName(text, params.get('mesh') || '', namesOf(signal));
  return {kind: given, mesh: mesh || (name ? 'default' : ''), name};
}

/** Returns the resource of an address, `{type, mesh, name}`, by its parameters `type`, `mesh`, and `name`. */
export async function resourceOf(params) {
  const type = params.get('type') || '', mesh = params.get('mesh') || '', text = params.get('name') || '';
  if (!text.includes('/')) return {type, mesh, name: text};
  const first = await kindOf(text.split('/')[0]);
  const n = splitName(text, () => Boolean(first));
  if (n.type && !first) return {type, mesh, name: text};
  return {type: first && n.type ? first.kind : type, mesh: n.mesh || mesh, name: n.name};
}
