// Package audit says what is logged of a request to the API, and how: profiles and levels, and the
// event as one line of JSON in the shape of audit.k8s.io/v1, so that readers of Kubernetes' audit
// logs read it.
//
// It is values and functions of them: who asks, when, and where the lines go is the matter of
// others. Promises:
//
//   - The line of an event is one line of valid UTF-8 and valid JSON of at most [MaxLine] bytes,
//     whatever a client sends. In all texts but those of bodies, control characters and what turns
//     the direction of text are escaped so that they can be shown.
//   - What looks like a private key or a token is taken out of every text, and the values of query
//     parameters that are named like a secret. What may hold a secret by its kind is never above
//     the level Metadata: see [Request].
//   - A body that is too long is cut to a document that is valid, and the event says so.
package audit
