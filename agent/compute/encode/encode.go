// Package encode writes the messages of which a proxy has thousands directly in protobuf's wire
// format: load assignments, and TLS contexts of clusters. The bytes equal those of the protobuf
// library with deterministic output. The package is pure.
package encode

import "google.golang.org/protobuf/encoding/protowire"

func appendString(b []byte, n protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, n, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	b = protowire.AppendTag(b, n, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

func appendVarint(b []byte, n protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, n, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}
