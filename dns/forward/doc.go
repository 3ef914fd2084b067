// Package forward asks name servers for what no table answers, and caches their answers.
//
// A [Forwarder] asks over UDP with random IDs, ports, and letter case, and over TCP where a reply
// is truncated or forged replies arrive. Questions in flight, clients that wait, and the cache are
// bounded. A slow or dead server delays nobody for longer than the time until the next one is
// asked. Stale answers are served while no server answers (RFC 8767).
package forward
