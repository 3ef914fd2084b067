// Package dns serves DNS over UDP and TCP. A [Server] answers from a table of names (package
// table) and forwards other queries (package forward). The package knows names, addresses, and
// name servers, but nothing about the mesh.
package dns
