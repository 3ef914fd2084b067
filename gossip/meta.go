package gossip

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// meta is the memberlist metadata of a member.
type meta struct {
	node    engine.NodeID
	epoch   uint64
	name    string
	zone    string
	version string
}

const (
	metaNode protowire.Number = iota + 1
	metaEpoch
	metaName
	metaZone
	metaVersion
)

const maxMetaText = 64

func (m meta) encode() []byte {
	b := protowire.AppendTag(nil, metaNode, protowire.BytesType)
	b = protowire.AppendBytes(b, m.node[:])
	b = protowire.AppendVarint(protowire.AppendTag(b, metaEpoch, protowire.VarintType), m.epoch)
	b = protowire.AppendString(protowire.AppendTag(b, metaName, protowire.BytesType), m.name)
	b = protowire.AppendString(protowire.AppendTag(b, metaZone, protowire.BytesType), m.zone)
	return protowire.AppendString(protowire.AppendTag(b, metaVersion, protowire.BytesType), m.version)
}

// decodeMeta decodes metadata. It skips unknown fields.
func decodeMeta(b []byte) (m meta, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, errors.New("metadata is truncated")
		}
		b = b[n:]
		var bytes []byte
		var value uint64
		switch {
		case typ == protowire.BytesType && num <= metaVersion:
			bytes, n = protowire.ConsumeBytes(b)
		case typ == protowire.VarintType && num <= metaVersion:
			value, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return m, errors.New("metadata is truncated")
		}
		b = b[n:]
		switch num {
		case metaNode:
			if len(bytes) != len(m.node) {
				return m, fmt.Errorf("node id has %d bytes, %d are required", len(bytes), len(m.node))
			}
			m.node = engine.NodeID(bytes)
		case metaEpoch:
			m.epoch = value
		case metaName:
			m.name = string(bytes)
		case metaZone:
			m.zone = string(bytes)
		case metaVersion:
			m.version = string(bytes)
		}
	}
	if m.node == (engine.NodeID{}) || len(m.name) > maxMetaText || len(m.zone) > maxMetaText ||
		len(m.version) > maxMetaText {
		return m, errors.New("metadata has no node ID, or a field that is too long")
	}
	return m, nil
}

// member returns the member name for this node and epoch.
func (m meta) member() string { return engine.MemberName(m.node, m.epoch) }
