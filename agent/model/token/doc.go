// Package token creates and verifies tokens for Envoys and API clients: JSON Web Tokens (RFC 7519),
// signed with Ed25519 (EdDSA, RFC 8037) by the agent's keys and verified offline.
//
// Guarantees:
//   - There is one algorithm. A token with another one, including "none", is rejected regardless of
//     its signature.
//   - Cheap checks come first: size, form, algorithm, key, audience, and times are checked before
//     the signature.
//   - Private keys are in files that only the agent's user can read, and in memory only while one
//     signs. A file that others can read or write is rejected with the remedy. Neither a key nor a
//     token appears in an error or log line.
//   - Another process that verifies tokens sees a change of the directory within about a second.
//   - Revoked tokens stay revoked: if the list of revocations cannot be read, all tokens are
//     rejected.
//
// A token with the audience [AudienceXDS] is for Envoys: Claims.Mesh and Claims.Name select the
// proxies that it may act as, and Claims.Services the services that a Dataplane in its node
// metadata may claim. A token with [AudienceAPI] is for API clients and has only a subject. Globs
// have one special character: "*" matches any number of characters.
package token
