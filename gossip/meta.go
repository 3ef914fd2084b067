package gossip

import (
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Feature bits of members, in addition to those of the engine. A feature is used with a member only
// if its metadata has the bit.
const (
	// FeatureProbe means that a member answers probes over a stream.
	FeatureProbe uint64 = 1 << 32
	// FeatureSigned means that a member reads signed frames.
	FeatureSigned uint64 = 1 << 33

	ownFeatures = engine.Features | FeatureProbe | FeatureSigned
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

	statement string // of the node's former key; see [pins.Statement]. "": none
	signature string // "": the member does not sign
	signed    int    // length of the encoding before the signature
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
	metaStatement
	metaSignature // the last field
)

const maxMetaText = 64

const domainMeta = "nearside member signature"

// sign returns the encoding with a signature over it, the cluster, and the address of the member.
func (m meta) sign(s sign.Signer, cluster string, addr netip.AddrPort) ([]byte, error) {
	b := m.encode()
	signature, err := sign.Make(s, domainMeta, signedMeta(b, cluster, addr))
	if err != nil {
		return nil, fmt.Errorf("gossip: sign the metadata of this node: %w", err)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, metaSignature, protowire.BytesType), signature), nil
}

// verify checks the signature of metadata that was decoded from b.
func (m meta) verify(b []byte, cluster string, addr netip.AddrPort) error {
	key, err := sign.Verify(domainMeta, signedMeta(b[:m.signed], cluster, addr), []byte(m.signature))
	if err != nil {
		return err
	}
	if sign.Fingerprint(key) != sign.ID(m.node) {
		return fmt.Errorf("the metadata of node %s is signed by key %s", m.node, sign.Fingerprint(key))
	}
	if m.statement != "" {
		_, err = pins.CheckStatement([]byte(m.statement), cluster, m.name, sign.ID(m.node))
	}
	return err
}

func signedMeta(b []byte, cluster string, addr netip.AddrPort) []byte {
	return append([]byte(cluster+"\x00"+addr.String()+"\x00"), b...)
}

func (m meta) encode() []byte {
	b := protowire.AppendTag(nil, metaNode, protowire.BytesType)
	b = protowire.AppendBytes(b, m.node[:])
	b = protowire.AppendVarint(protowire.AppendTag(b, metaEpoch, protowire.VarintType), m.epoch)
	b = protowire.AppendString(protowire.AppendTag(b, metaName, protowire.BytesType), m.name)
	b = protowire.AppendString(protowire.AppendTag(b, metaZone, protowire.BytesType), m.zone)
	b = protowire.AppendString(protowire.AppendTag(b, metaVersion, protowire.BytesType), m.version)
	b = protowire.AppendVarint(protowire.AppendTag(b, metaProtocolMin, protowire.VarintType), m.protocol.Min)
	b = protowire.AppendVarint(protowire.AppendTag(b, metaProtocolMax, protowire.VarintType), m.protocol.Max)
	b = protowire.AppendVarint(protowire.AppendTag(b, metaFeatures, protowire.VarintType), m.features)
	if m.statement != "" {
		b = protowire.AppendString(protowire.AppendTag(b, metaStatement, protowire.BytesType), m.statement)
	}
	return b
}

// decodeMeta decodes metadata. It skips unknown fields. Metadata of builds without a protocol range
// means version 1 and no features.
func decodeMeta(b []byte) (m meta, err error) {
	m.protocol = Protocol{1, 1}
	for all := len(b); len(b) > 0; {
		if m.signature != "" {
			return m, errors.New("metadata has bytes after the signature")
		}
		m.signed = all - len(b)
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return m, errors.New("metadata is truncated")
		}
		b = b[n:]
		var bytes []byte
		var value uint64
		switch {
		case typ == protowire.BytesType && num <= metaSignature:
			bytes, n = protowire.ConsumeBytes(b)
		case typ == protowire.VarintType && num <= metaSignature:
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
		case metaStatement:
			m.statement = string(bytes)
		case metaSignature:
			m.signature = string(bytes)
		}
		if (num == metaStatement || num == metaSignature) && len(bytes) != sign.Size {
			return m, fmt.Errorf("a signature in the metadata has %d bytes, %d are required", len(bytes), sign.Size)
		}
	}
	if m.signature == "" {
		m.signed = 0
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
