// Package access makes access decisions: which peer may act as which proxy, and who may read and
// write which resources.
//
// A [Peer] holds the credentials that the kernel reports for a connection, and a token or client
// certificate if the peer sent one. [Proxies] decides for xDS streams, and [Roles] for API requests
// and directories of resource files. Both allow only what a rule grants. Decisions need neither
// files nor locks.
package access
