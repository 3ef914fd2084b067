// Package token makes and verifies the tokens that say who an Envoy or a client of the API is: JSON
// Web Tokens (RFC 7519) signed with Ed25519 (EdDSA, RFC 8037) by keys of the agent's own, verified
// without asking anybody.
//
// It promises:
//   - One algorithm. A token with another one, "none" among them, is refused whatever its
//     signature.
//   - What can be refused cheaply is: size, form, algorithm, key, audience and times are looked at
//     before the signature.
//   - Private keys are in files that the agent's user alone can read, and in memory only while one
//     signs. A file that others could have read, or have written, is refused with the remedy.
//     Neither a key nor a token is in an error or log line.
//   - What one process changes in the directory, another one that verifies knows within about a
//     second.
//   - Revoked tokens stay revoked: when the list of revocations cannot be read, no token is
//     accepted.
//
// A token with the audience [AudienceXDS] is for Envoys: Claims.Mesh and Claims.Name say which
// proxies it may be, and Claims.Services which services a Dataplane in its node metadata may claim.
// One with [AudienceAPI] is for clients of the API and names a subject alone. Globs have one
// special character: "*" stands for any number of characters.
package token
