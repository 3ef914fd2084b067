package trusttest_test

import (
	"crypto/ed25519"
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// metadata describes a member to memberlist.
type metadata struct {
	key   ed25519.PrivateKey // nil: the metadata has no signature, as in earlier releases
	node  engine.NodeID
	epoch uint64
	name  string
	zone  string
	addr  netip.AddrPort
}

// member returns metadata of a member with a new key.
func member(name string) metadata {
	key, id := newKey()
	return metadata{key: key, node: id, name: name}
}

// idOf returns the ID of a node with this key.
func idOf(pub ed25519.PublicKey) engine.NodeID {
	return engine.NodeID(plainHash("nearside key", pub))
}

func (m metadata) encode() []byte {
	b := appendBytes(nil, 1, m.node[:])
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), m.epoch)
	b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), m.name)
	b = protowire.AppendString(protowire.AppendTag(b, 4, protowire.BytesType), m.zone)
	b = protowire.AppendString(protowire.AppendTag(b, 5, protowire.BytesType), hostileVersion)
	b = appendNumber(b, 6, 1)
	b = appendNumber(b, 7, 1)
	b = appendNumber(b, 8, uint64(engine.Features))
	if m.key == nil {
		return b
	}
	signed := append([]byte(cluster+"\x00"+m.addr.String()+"\x00"), b...)
	return appendBytes(b, 10, signature(m.key, "nearside member signature", signed))
}

// cluster is the name of the pools.
const cluster = "default"

// hostileVersion is the version of the program that hostile members report.
const hostileVersion = "hostile"
