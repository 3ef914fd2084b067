// Package logs brings access logs from Envoys and from the network to rotated files and collectors:
// it opens what the config names, gives each Envoy the FIFOs that its config mentions before the
// Envoy hears of them, and says what became of the lines. The lines themselves are the matter of
// package accesslog.
package logs
