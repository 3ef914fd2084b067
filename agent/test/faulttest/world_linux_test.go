package faulttest_test

// base are the resources of the shared node. The Envoy of web is a real one.
const base = `{type: Mesh, name: default}
---
{type: Mesh, name: strict, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}
---
type: Dataplane
mesh: default
name: web
networking:
  address: $IP
  inbound:
  - {port: 10080, servicePort: 8080, name: http, tags: {kuma.io/service: web, kuma.io/protocol: http}}
  outbound:
  - {port: 20001, tags: {kuma.io/service: backend}}
  - {port: 20002, tags: {kuma.io/service: redis}}
  - {port: 20003, tags: {kuma.io/service: greeter}}
  - {port: 20004, tags: {kuma.io/service: queue}}
---
{type: Dataplane, mesh: default, name: backend-1, networking: {address: 192.0.2.1, inbound: [
  {port: 10081, servicePort: 8081, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v1}}]}}
---
{type: Dataplane, mesh: default, name: backend-2, networking: {address: 192.0.2.2, inbound: [
  {port: 10081, servicePort: 8081, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v2}}]}}
---
{type: Dataplane, mesh: default, name: redis, networking: {address: 192.0.2.3, inbound: [
  {port: 16379, servicePort: 6379, tags: {kuma.io/service: redis, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, mesh: default, name: greeter, networking: {address: 192.0.2.4, inbound: [
  {port: 10051, servicePort: 50051, tags: {kuma.io/service: greeter, kuma.io/protocol: grpc}}]}}
---
{type: Dataplane, mesh: default, name: queue, networking: {address: 192.0.2.5, inbound: [
  {port: 9092, servicePort: 9093, tags: {kuma.io/service: queue, kuma.io/protocol: kafka}}]}}
---
{type: Dataplane, mesh: strict, name: front, networking: {address: 192.0.2.6, inbound: [
  {port: 80, servicePort: 8080, tags: {kuma.io/service: front, kuma.io/protocol: http}}],
  outbound: [{port: 20001, address: 127.0.0.9, tags: {kuma.io/service: vault}}]}}
---
{type: Dataplane, mesh: strict, name: vault, networking: {address: 192.0.2.7, inbound: [
  {port: 80, servicePort: 8080, tags: {kuma.io/service: vault, kuma.io/protocol: http}}]}}
---
{type: MeshTrafficPermission, mesh: strict, name: all, spec: {targetRef: {kind: Mesh},
  from: [{targetRef: {kind: Mesh}, default: {action: Allow}}]}}
`

// policy returns a policy of mesh default with a spec.
func policy(kind, name, spec string) string {
	return "---\n{type: " + kind + ", mesh: default, name: " + name + ", spec: " + spec + "}\n"
}
