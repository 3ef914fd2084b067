// Package table holds names with what they resolve to, and answers DNS queries from them.
//
// A [Table] is an immutable set of names, made from [Host] values and swapped as a whole. What is
// in it, or below one of its own suffixes, is answered here alone. Names are compared without case
// (RFC 4343) and come back as the client has written them; wildcards follow RFC 4592; negative
// answers carry an SOA (RFC 2308). [Answers] adds which clients see which names.
//
// This is the hot path: a [Query] is read and answered without allocations and without another
// library. Everything here is pure.
package table
