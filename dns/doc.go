// Package dns answers for names that it is told about, and forwards the rest. It knows names,
// addresses and name servers, and nothing of the mesh.
//
// A [Table] is an immutable set of names, made from [Host] values and swapped as a whole. What is
// in it, or below one of its own suffixes, is answered here alone and never asked of others. Names
// are compared without case (RFC 4343) and come back as the client has written them; wildcards
// follow RFC 4592; negative answers carry an SOA (RFC 2308).
package dns
