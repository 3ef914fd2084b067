// Package render returns documents about a mesh for the API and the commands: the config of a
// proxy, the services with their hostnames and ports, and the kinds of resources.
//
// All functions are pure: they convert computed values to documents of package api. The documents
// contain no private keys.
package render
