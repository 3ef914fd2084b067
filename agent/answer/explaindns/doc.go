// Package explaindns explains how a name resolves: which names the client queries, who owns each
// of them, whether its dataplane can reach the owner, and how the proxy treats a name outside the
// mesh. It queries the same table as the resolver. The package is pure.
package explaindns
