// Package inspect is the agent's HTTP API: resources, what each proxy gets and whether it took it, health, metrics.
//
// It speaks JSON over a unix socket, and on request over a loopback TCP address. Paths and documents follow Kuma's, so
// that its users' tools work; what has no model there lies below /v1. Promises:
//
//   - Every answer of an API path is JSON. An error is a problem document of RFC 9457 (application/problem+json) with
//     type, title, status, detail and, for bad input, invalid_parameters [{field, reason}].
//   - Reading is open to every peer that can open the socket. Writing needs root, the agent's user or a member of the
//     socket's group, known by the peer credentials of the connection (unix(7), SO_PEERCRED); over TCP it needs the
//     token. Requests that look as if a browser had sent them are refused.
//   - All documents of a write are validated before the first is stored, and all are stored in one step.
//   - Lists are sorted and answers deterministic; private keys appear nowhere.
//   - Work per request is bounded: body, header and answer times, connections.
//
// The part that computes an answer from a resource set ([ProxyConfig]) is pure, and commands use it offline.
package inspect
