// Package edges answers which services of a mesh may call which others, and which policies decide.
//
// A [Graph] holds the answer for one state of a mesh. The client of an edge is a service, and the
// edge combines its dataplanes: their reachable services come from the policy index, as in
// explanations, and the decisions about them from the merged permissions of the inbounds that
// receive the connections. Where these are unknown, behind other zones, the permissions that select
// the service decide. Traffic is not needed.
//
// The number of pairs is the square of the number of services, so a Graph stores decisions about
// classes of clients and destinations, and only counts edges. [Graph.Page] computes the documents
// of a page. The package is pure: the same input gives the same bytes. A Graph is for one
// goroutine.
package edges
