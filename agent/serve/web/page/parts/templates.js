// Templates of resources to begin with.

import {schemaOf} from './completion.js';
import {toYAML} from './yaml.js';

const SPECS = {
  MeshTrafficPermission: {targetRef: {kind: 'Mesh'}, from: [{targetRef: {kind: 'MeshService', name: 'CLIENT'},
    default: {action: 'Allow'}}]},
  MeshTimeout: {to: [{targetRef: {kind: 'MeshService', name: 'SERVICE'}, default: {http: {requestTimeout: '15s'}}}]},
  MeshRetry: {to: [{targetRef: {kind: 'MeshService', name: 'SERVICE'},
    default: {http: {numRetries: 2, retryOn: ['5xx']}}}]},
  MeshPassthrough: {default: {passthroughMode: 'Matched', appendMatch: [{type: 'Domain', value: 'api.example.com',
    port: 443,
    protocol: 'tls'}]}},
  MeshAccessLog: {to: [{targetRef: {kind: 'Mesh'}, default: {backends: [{type: 'File',
    file: {path: '/dev/stdout'}}]}}]},
};

/** Returns a text with the members that a resource of a kind needs. */
export async function template(kind, mesh) {
  const head = {type: kind.kind, ...kind.global ? {} : {mesh}, name: 'NAME'};
  if (kind.kind === 'Mesh') return toYAML({...head, mtls: {enabledBackend: 'ca',
    backends: [{name: 'ca', type: 'builtin'}]}});
  if (kind.kind === 'Dataplane') {
    return toYAML({...head, networking: {address: '10.0.0.1',
      inbound: [{port: 8080, tags: {'kuma.io/service': 'SERVICE',
      'kuma.io/protocol': 'http'}}]}});
  }
  const known = SPECS[kind.kind];
  if (known) return toYAML({...head, spec: {...kind.policy && !known.targetRef ? {targetRef: {kind: 'Mesh'}} : {},
    ...known}});
  const spec = (await schemaOf(kind.kind))?.properties?.spec?.properties;
  if (!spec) return toYAML(head);
  const out = {};
  if (spec.targetRef) out.targetRef = {kind: 'Mesh'};
  if (spec.to) out.to = [{targetRef: {kind: 'Mesh'}, default: {}}];
  else if (spec.rules) out.rules = [{default: {}}];
  else if (spec.default) out.default = {};
  return toYAML({...head, spec: out});
}
