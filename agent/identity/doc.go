// Package identity makes and keeps what the proxies of a node prove themselves with under mutual TLS: an authority for
// each backend of a mesh, and from it a certificate for each proxy, with the names that its tags give it.
//
// It promises:
//   - A private key is in memory and in files that the agent's user alone can read. A file that others could read, or
//     could have written, is refused. Keys are in no message, log line or error.
//   - What is valid stays: after a restart proxies have the certificates that they had.
//   - Certificates are renewed at four fifths of their life at the latest, each proxy at a time of its own. An authority
//     is trusted for a while before it signs, and as long as something that it has signed is valid.
//   - A disk that takes no file costs nothing but the promise of the second point.
//
// Names, times and certificates are pure functions; [Keeper] holds the state, and reads the clock and the files.
package identity
