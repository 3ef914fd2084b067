// Package resolver is the DNS server of an agent: it answers the names of the meshes by itself, and
// forwards the rest.
//
// Promises:
//
//   - The table is there before the first query is answered. While the agent knows no mesh, names
//     below the suffixes of the meshes fail, so that nobody is told that they do not exist; the
//     rest is forwarded.
//   - A change of the meshes is answered within moments of the proxies having it. Tables are made
//     beside the queries, which never wait for one.
//   - The query log is bounded in memory and on disk, and no answer waits for it: what it cannot
//     take is dropped and counted.
package resolver
