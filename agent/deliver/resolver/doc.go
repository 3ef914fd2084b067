// Package resolver is the DNS server of an agent. It answers names of the meshes from a table,
// and forwards other queries.
//
// Guarantees:
//
// - The table exists before the first query is answered. While the agent knows no mesh, names
// below the suffixes of the meshes get SERVFAIL, because clients would cache NXDOMAIN. Other
// queries are forwarded.
//
// - Changed names are served shortly after the proxies get the change. Queries never wait while a
// table is built.
//
// - The query log is limited in memory and on disk, and never delays a reply: records beyond the
// limits are dropped and counted.
package resolver
