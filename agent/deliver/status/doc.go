// Package status reports the state of resources and proxies: the result of the last reconciliation,
// the state of each resource on the proxies of this node and of other nodes, the state of each
// proxy, and its problems.
//
// It returns the documents of package api. Callers check access.
package status
