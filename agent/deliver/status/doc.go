// Package status returns how resources and proxies stand: the result of the last reconciliation,
// how far each resource is in force on the proxies of this node and of the other nodes, the state
// of each proxy, and the problems of proxies.
//
// The documents are those of package api. Access is checked by the caller.
package status
