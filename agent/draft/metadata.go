package draft

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of the messages that are encoded here.
const (
	fieldListenerMetadata = 6 // envoy.config.listener.v3.Listener
	fieldFilterMetadata   = 1 // envoy.config.core.v3.Metadata
	fieldStructFields     = 1 // google.protobuf.Struct
	fieldStringValue      = 3 // google.protobuf.Value
	fieldKey              = 1 // of a map entry
	fieldValue            = 2
)

// tagsNamespace is where a listener's metadata says which tags it stands for.
const tagsNamespace = "io.kuma.tags"

// AppendTag appends one entry of a google.protobuf.Struct, a string. Entries in the order of their keys are what the
// protobuf library writes as deterministic form; building the messages first costs many times as much.
func AppendTag(b []byte, key, value string) []byte {
	v := protowire.SizeTag(fieldStringValue) + protowire.SizeBytes(len(value))
	n := protowire.SizeTag(fieldKey) + protowire.SizeBytes(len(key)) + protowire.SizeTag(fieldValue) + protowire.SizeBytes(v)
	b = protowire.AppendTag(b, fieldStructFields, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(v))
	b = protowire.AppendTag(b, fieldStringValue, protowire.BytesType)
	return protowire.AppendString(b, value)
}

// AppendNamespace appends one entry of the filter metadata of an envoy.config.core.v3.Metadata.
func AppendNamespace(b []byte, namespace string, tags []byte) []byte {
	n := protowire.SizeTag(fieldKey) + protowire.SizeBytes(len(namespace)) + protowire.SizeTag(fieldValue) + protowire.SizeBytes(len(tags))
	b = protowire.AppendTag(b, fieldFilterMetadata, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
	b = protowire.AppendString(b, namespace)
	b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
	return protowire.AppendBytes(b, tags)
}

// appendListenerTags appends the metadata of a listener to its wire form. What the message holds there already is
// merged by whoever reads it, as the wire format has it.
func appendListenerTags(b []byte, tags map[string]string) []byte {
	var room [8]string
	keys := slices.AppendSeq(room[:0], maps.Keys(tags))
	slices.Sort(keys)
	scratch := make([]byte, 0, 512)
	for _, k := range keys {
		scratch = AppendTag(scratch, k, tags[k])
	}
	n := len(scratch)
	scratch = AppendNamespace(scratch, tagsNamespace, scratch[:n])
	b = protowire.AppendTag(b, fieldListenerMetadata, protowire.BytesType)
	return protowire.AppendBytes(b, scratch[n:])
}
