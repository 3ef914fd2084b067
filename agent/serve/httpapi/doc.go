// Package httpapi implements the agent's HTTP API: resources, config and sync status of proxies,
// health, and metrics.
//
// It speaks JSON over a Unix socket, and optionally over a loopback TCP address. Paths and
// documents follow Kuma's API, so that tools for Kuma work. Other paths are below /v1. It
// guarantees:
//
//   - Every answer of an API path is JSON. An error is a problem document of RFC 9457
//     (application/problem+json) with type, title, status, detail and, for invalid input,
//     invalid_parameters [{field, reason}].
//   - Every route declares the permission that it needs, and [access.Roles] decides. The identity
//     of the sender is the peer credentials of the connection (unix(7), SO_PEERCRED), or a token,
//     which TCP requires for all paths except /, /livez, and /readyz. Lists contain what the sender
//     may see. Requests that look like those of a browser are refused.
//   - All documents of a write are validated before the first is stored, and all are stored in one
//     step.
//   - Lists are sorted, answers are deterministic, and private keys never appear.
//   - Work is bounded per request and per user: body, header, answer time, connections, and wrong
//     tokens.
//
// [render.ProxyConfig], which computes an answer from a resource set, is pure, and commands use it
// offline.
package httpapi
