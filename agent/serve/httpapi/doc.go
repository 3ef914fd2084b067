// Package httpapi is the agent's HTTP API: resources, what each proxy gets and whether it took it,
// health, metrics.
//
// It speaks JSON over a unix socket, and on request over a loopback TCP address. Paths and
// documents follow Kuma's, so that its users' tools work; what has no model there lies below /v1.
// Promises:
//
//   - Every answer of an API path is JSON. An error is a problem document of RFC 9457
//     (application/problem+json) with type, title, status, detail and, for bad input,
//     invalid_parameters [{field, reason}].
//   - Every route says what it takes of who calls it; [access.Roles] decides. Who that is follows
//     from the peer credentials of the connection (unix(7), SO_PEERCRED), or from a token, which
//     TCP needs for all but /, /livez and /readyz. Lists have what the sender may see. Requests
//     that look as if a browser had sent them are refused.
//   - All documents of a write are validated before the first is stored, and all are stored in one
//     step.
//   - Lists are sorted and answers deterministic; private keys appear nowhere.
//   - Work is bounded, per request and per user: body, header and answer times, connections, wrong
//     tokens.
//
// The part that computes an answer from a resource set ([render.ProxyConfig]) is pure, and commands
// use it offline.
package httpapi
