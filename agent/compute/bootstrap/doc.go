// Package bootstrap renders the file with which an Envoy starts: its node, the xDS server, the
// admin socket, and limits. The result depends only on the options. It also parses such files.
package bootstrap
