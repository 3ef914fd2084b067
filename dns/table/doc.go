// Package table stores names with their records, and answers DNS queries from them.
//
// A [Table] is an immutable set of names built from [Host] values; updates replace it as a whole.
// Names in the table, or below its owned suffixes, are never forwarded. Names are compared
// case-insensitively (RFC 4343) and returned as the client wrote them. Wildcards follow RFC 4592,
// and negative answers have an SOA record (RFC 2308). [Answers] adds views: which clients see
// which names.
//
// This is the hot path: reading and answering a [Query] allocates nothing and uses no other
// library. Everything here is pure.
package table
