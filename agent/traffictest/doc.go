// Package traffictest holds the tests that send real connections and requests through a redirection of the kernel, in
// network namespaces.
package traffictest
