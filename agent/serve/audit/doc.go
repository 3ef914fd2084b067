// Package audit defines how requests to the API are logged: profiles and levels, and events as
// single JSON lines in the format of audit.k8s.io/v1, which readers of Kubernetes audit logs
// understand.
//
// The package is pure. It guarantees:
//
//   - An event is one line of valid UTF-8 and valid JSON of at most [MaxLine] bytes, for any input.
//     Except in bodies, it escapes control characters and characters that change the direction of
//     text.
//   - It redacts private keys and tokens in all texts, and query parameters with names of secrets.
//     Requests that may contain a secret never exceed the level Metadata: see [Request].
//   - It truncates a long body to a valid document, and marks the event.
package audit
