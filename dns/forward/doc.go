// Package forward forwards queries to name servers, and caches their answers.
//
// A [Forwarder] queries over UDP with random IDs, ports, and letter case. It uses TCP if a reply
// is truncated or if forged replies arrive. The number of questions in flight, the number of
// waiting clients, and the cache size are limited. A slow or dead server delays a query only
// until the next server is tried. Stale answers are served while no server answers (RFC 8767).
package forward
