// Package dns serves DNS over UDP and TCP. A [Server] answers from a table of names (package table)
// and forwards the rest (package forward). It knows names, addresses, and name servers, and nothing
// of the mesh.
package dns
