// Package access decides who may do what: which peer may be which proxy, and who may read and write
// which resources.
//
// A [Peer] is what the kernel says of a connection, with what the peer has proved beside that: a
// token or a client certificate. [Proxies] decides for xDS streams, [Roles] for requests to the API
// and for directories of resource files. Both allow only what a rule gives. Decisions need no file
// and no lock.
package access
