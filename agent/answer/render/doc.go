// Package render returns what the API and the commands show about a mesh: the config of a proxy,
// the services with their hostnames and ports, and the kinds of resources.
//
// All functions are pure: they compute documents of package api from the results of the
// computation. Private keys appear nowhere.
package render
