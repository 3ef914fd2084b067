package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/gossip/engine/ident"
	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
	"github.com/nearside-mesh/nearside/gossip/engine/wire"
)

// Limits of messages.
const (
	// MaxPacket is the maximum length of a message that is sent as a packet, which can get lost. With
	// encryption, label, and headers, it stays below the minimum MTU of IPv6.
	MaxPacket = 1100
	// MaxMessage is the maximum length of a message.
	MaxMessage = 1 << 20

	// ProtocolMin and ProtocolMax are the versions of the protocol that this build supports. The
	// version is the first byte of each message.
	ProtocolMin     = 1
	ProtocolMax     = 1
	protocolVersion = ProtocolMax

	maxMember = 128
	sumSize   = 6
	sumsSize  = 1 + 8 + 16*sumSize
)

// Optional parts of the protocol. Nodes report those they support in their metadata.
const (
	FeatureShards      uint64 = 1 << iota // manifests with several shards
	FeatureDirectories                    // published directories
	FeatureEras                           // eras in versions

	Features = FeatureShards | FeatureDirectories | FeatureEras // of this build
)

// Sums holds the sender's sums of the 16 children of a prefix.
type Sums struct {
	Prefix
	Parts [16]uint64
}

// Leaves holds all heads of the sender below a prefix.
type Leaves struct {
	Prefix
	Heads []Head
}

// message is the only message type of the protocol. Each field may be empty.
type message struct {
	From      string // member name of the sender
	Agreed    uint64 // when the sender last agreed with a peer, in milliseconds since 1970; 0: never
	Have      []Head
	Want      []Slot
	WantBody  []BodyHash
	Request   uint64 // number of a Want, repeated in its replies
	Reply     uint64
	Last      bool // last message of a reply
	Stream    bool // the message uses a stream, and replies should use one too
	Sums      []Sums
	Leaves    []Leaves
	Records   []*Record
	Manifests []*Manifest
	Bodies    [][]byte
	Root      *Digest // of the sender, in messages of a check
	Echo      bool    // Leaves answer the receiver's leaves

	asked bool // it answers a request of this node; not sent
}

const (
	messageFrom = iota + 1
	messageAgreed
	messageHave
	messageWant
	messageWantBody
	messageRequest
	messageReply
	messageLast
	messageStream
	messageSums
	messageLeaves
	messageRecord
	messageManifest
	messageBody
	messageShard // a manifest that builds without shards and directories must not see
	messageRoot
	messageEcho
)

func (m *message) encode() []byte {
	b := []byte{protocolVersion}
	b = wire.AppendText(b, messageFrom, m.From)
	b = wire.AppendFixed(b, messageAgreed, m.Agreed)
	var packed []byte
	for _, h := range m.Have {
		packed = h.Append(packed)
	}
	b = wire.AppendBytes(b, messageHave, packed)
	packed = nil
	for _, s := range m.Want {
		packed = append(packed, s[:]...)
	}
	b = wire.AppendBytes(b, messageWant, packed)
	packed = nil
	for _, h := range m.WantBody {
		packed = append(packed, h[:]...)
	}
	b = wire.AppendBytes(b, messageWantBody, packed)
	b = wire.AppendVarint(b, messageRequest, m.Request)
	b = wire.AppendVarint(b, messageReply, m.Reply)
	b = wire.AppendFlag(b, messageLast, m.Last)
	b = wire.AppendFlag(b, messageStream, m.Stream)
	packed = nil
	for _, s := range m.Sums {
		packed = s.Prefix.Append(packed)
		for _, p := range s.Parts {
			packed = append(packed, binary.BigEndian.AppendUint64(nil, p)[8-sumSize:]...)
		}
	}
	b = wire.AppendBytes(b, messageSums, packed)
	for _, l := range m.Leaves {
		packed = l.Prefix.Append(nil)
		for _, h := range l.Heads {
			packed = h.Append(packed)
		}
		b = wire.AppendBytes(b, messageLeaves, packed)
	}
	for _, r := range m.Records {
		b = wire.AppendBytes(b, messageRecord, r.Encoded())
	}
	for _, x := range m.Manifests {
		if !x.Extended() {
			b = wire.AppendBytes(b, messageManifest, x.Encoded())
		}
	}
	for _, x := range m.Bodies {
		b = protowire.AppendBytes(protowire.AppendTag(b, messageBody, protowire.BytesType), x)
	}
	for _, x := range m.Manifests {
		if x.Extended() {
			b = wire.AppendBytes(b, messageShard, x.Encoded())
		}
	}
	if m.Root != nil {
		b = wire.AppendBytes(b, messageRoot, m.Root.Append(nil))
	}
	return wire.AppendFlag(b, messageEcho, m.Echo)
}

func repeats(n protowire.Number) bool {
	return n == messageLeaves || n == messageRecord || n == messageManifest || n == messageBody || n == messageShard
}

// decodeMessage decodes a message. It retains b, which must not be modified afterwards.
func decodeMessage(b []byte) (*message, error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("message has %d bytes, at most %d are allowed", len(b), MaxMessage)
	}
	if len(b) == 0 || b[0] != protocolVersion {
		return nil, errors.New("message has an unknown protocol version")
	}
	m := &message{}
	err := wire.Walk("message", b[1:], repeats, m.set)
	if err == nil && m.From == "" {
		err = errors.New("message has no sender")
	}
	return m, err
}

func (m *message) set(f wire.Field) (err error) {
	var v []byte
	switch f.Num {
	case messageFrom:
		return f.Text(&m.From, maxMember)
	case messageAgreed:
		m.Agreed, err = f.Number()
	case messageRequest:
		m.Request, err = f.Number()
	case messageReply:
		m.Reply, err = f.Number()
	case messageLast:
		m.Last, err = f.Flag()
	case messageStream:
		m.Stream, err = f.Flag()
	case messageEcho:
		m.Echo, err = f.Flag()
	case messageRoot:
		if v, err = f.Take(MaxMessage); err == nil {
			var root Digest
			root, err = sumtree.ParseDigest(v)
			m.Root = &root
		}
	case messageHave, messageWant, messageWantBody, messageSums, messageLeaves, messageRecord, messageManifest,
		messageBody, messageShard:
		if v, err = f.Take(MaxMessage); err == nil {
			err = m.setBytes(f.Num, v)
		}
	}
	return err
}

func (m *message) setBytes(num protowire.Number, v []byte) (err error) {
	switch num {
	case messageHave:
		m.Have, err = ident.ParseHeads(v)
	case messageWant:
		m.Want, err = ident.ParseHashes(v)
	case messageWantBody:
		if len(v)%len(BodyHash{}) != 0 {
			return errors.New("hashes of bodies are truncated")
		}
		for ; len(v) > 0; v = v[len(BodyHash{}):] {
			m.WantBody = append(m.WantBody, BodyHash(v[:len(BodyHash{})]))
		}
	case messageSums:
		if len(v)%sumsSize != 0 {
			return errors.New("sums are truncated")
		}
		for ; len(v) > 0; v = v[sumsSize:] {
			s := Sums{}
			if s.Prefix, err = sumtree.ParsePrefix(v); err != nil {
				return err
			}
			for i := range s.Parts {
				for _, c := range v[9+sumSize*i:][:sumSize] {
					s.Parts[i] = s.Parts[i]<<8 | uint64(c)
				}
			}
			m.Sums = append(m.Sums, s)
		}
	case messageLeaves:
		l := Leaves{}
		if l.Prefix, err = sumtree.ParsePrefix(v); err == nil {
			l.Heads, err = ident.ParseHeads(v[9:])
		}
		m.Leaves = append(m.Leaves, l)
	case messageRecord:
		var r *Record
		r, err = DecodeRecord(v)
		m.Records = append(m.Records, r)
	case messageManifest, messageShard:
		var x *Manifest
		if x, err = DecodeManifest(v); err == nil && x.Extended() != (num == messageShard) {
			err = fmt.Errorf("shard %d of %s is in the wrong field", x.Index, x.Node)
		}
		m.Manifests = append(m.Manifests, x)
	case messageBody:
		if len(v) > MaxBody {
			return fmt.Errorf("body has %d bytes, at most %d are allowed", len(v), MaxBody)
		}
		m.Bodies = append(m.Bodies, v)
	}
	return err
}
