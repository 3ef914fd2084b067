// Package explaindns says why a name resolves as it does: which names the client asks for, who has
// each of them, whether its dataplane reaches the owner, and what the proxy does with a name that
// others resolve. It asks the table that the resolver answers from, and decides nothing itself. The
// package is pure.
package explaindns
