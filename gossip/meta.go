package gossip

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// Feature bits of members, in addition to those of the engine. A feature is used with a member only
// if its metadata has the bit.
const (
	// FeatureProbe means that a member answers probes over a stream.
	FeatureProbe uint64 = 1 << 32

	ownFeatures = engine.Features | FeatureProbe
)

// Protocol is a range of protocol versions.
type Protocol struct{ Min, Max uint64 }

// overlaps reports whether members with the two ranges have a version in common.
func (p Protocol) overlaps(o Protocol) bool { return p.Min <= o.Max && o.Min <= p.Max }

// String returns "1" or "1-2".
func (p Protocol) String() string {
	if p.Min == p.Max {
		return fmt.Sprint(p.Min)
	}
	return fmt.Sprintf("%d-%d", p.Min, p.Max)
}

// meta is the memberlist metadata of a member.
type meta struct {
	node     engine.NodeID
	epoch    uint64
	name     string
	zone     string
	version  string
	protocol Protocol
	features uint64
}

const (
	metaNode protowire.Number = iota + 1
	metaEpoch
	metaName
	metaZone
	metaVersion
	metaProtocolMin
	metaProtocolMax
	metaFeatures
)

const maxMetaText = 64

func (m meta) encode() []byte {
	b := protowire.AppendTag(nil, metaNode, protowire.BytesType)
	b = protowire.AppendBytes(b, m.node[:])
	b = protowire.AppendVarint(protowire.AppendTag(b, metaEpoch, protowire.VarintType), m.epoch)
	b = protowire.AppendString(protowire.AppendTag(b, metaName, protowire.BytesType), m.name)
	b = protowire.AppendString(protowire.AppendTag(b, metaZone, protowire.BytesType), m.zone)
	b = protowire.AppendString(protowire.AppendTag(b, metaVersion, protowire.BytesType), m.version)
	b = protowire.AppendVarint(protowire.AppendTag(b, metaProtocolMin, protowire.VarintType), m.protocol.Min)
	b = protowire.AppendVarint(protowire.AppendTag(b, metaProtocolMax, protowire.VarintType), m.protocol.Max)
	return protowire.AppendVarint(protowire.AppendTag(b, metaFeatures, protowire.VarintType), m.features)
}

// decodeMeta decodes metadata. It skips unknown fields. Metadata of builds without a protocol range
// means version 1 and no features.
func decodeMeta(b []byte) (m meta, err error) {
	m.protocol = Protocol{1, 1}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, errors.New("metadata is truncated")
		}
		b = b[n:]
		var bytes []byte
		var value uint64
		switch {
		case typ == protowire.BytesType && num <= metaFeatures:
			bytes, n = protowire.ConsumeBytes(b)
		case typ == protowire.VarintType && num <= metaFeatures:
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
		case metaProtocolMin:
			m.protocol.Min = value
		case metaProtocolMax:
			m.protocol.Max = value
		case metaFeatures:
			m.features = value
		}
	}
	if m.protocol.Min > m.protocol.Max {
		return m, fmt.Errorf("the protocol range %s is empty", m.protocol)
	}
	if m.node == (engine.NodeID{}) || len(m.name) > maxMetaText || len(m.zone) > maxMetaText ||
		len(m.version) > maxMetaText {
		return m, errors.New("metadata has no node ID, or a field that is too long")
	}
	return m, nil
}

// member returns the member name for this node and epoch.
func (m meta) member() string { return engine.MemberName(m.node, m.epoch) }
