// Package logs moves access logs from Envoys and the network to rotated files and collectors. It
// opens the configured destinations, creates the FIFOs of a config before Envoy gets it, and
// reports the state of all streams. Package accesslog handles the lines.
package logs
