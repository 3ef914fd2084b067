package intercept

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// These clauses compile to the same expressions as in nft, so that "nft list" shows them as
// intended.

func equal(data []byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

func isLive() clause {
	return clause{"meta nfproto @" + liveSet,
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: liveSet}}}
}

func marked() clause {
	return clause{fmt.Sprintf("meta mark %#08x", Mark),
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, equal(binaryutil.NativeEndian.PutUint32(Mark))}}
}

func byUser(set string) clause {
	return clause{"meta skuid @" + set,
		[]expr.Any{&expr.Meta{Key: expr.MetaKeySKUID, Register: 1}, &expr.Lookup{SourceRegister: 1, SetName: set}}}
}

func nfproto(family byte) clause {
	name := map[byte]string{unix.NFPROTO_IPV4: "ipv4", unix.NFPROTO_IPV6: "ipv6"}[family]
	return clause{"meta nfproto " + name,
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal([]byte{family})}}
}

func protoName(proto byte) string {
	return map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[proto]
}

func l4proto(proto byte) clause {
	return clause{"meta l4proto " + protoName(proto),
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{proto})}}
}

// port matches the source or destination port of TCP or UDP.
func port(proto byte, side string, number uint16) clause {
	offset := uint32(0)
	if side == "dport" {
		offset = 2
	}
	return clause{fmt.Sprintf("%s %s %d", protoName(proto), side, number), append(l4proto(proto).exprs,
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		equal(binaryutil.BigEndian.PutUint16(number)))}
}

// toPorts matches the destination port of TCP against a set.
func toPorts(set string) clause {
	return clause{"tcp dport @" + set, append(l4proto(unix.IPPROTO_TCP).exprs,
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: 1, SetName: set})}
}

// outside matches the interface that a packet leaves or enters by.
func outside(key, name string) clause {
	k := expr.MetaKeyOIFNAME
	if key == "iifname" {
		k = expr.MetaKeyIIFNAME
	}
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return clause{fmt.Sprintf("%s %q", key, name), []expr.Any{&expr.Meta{Key: k, Register: 1}, equal(data)}}
}

// loadAddress returns expressions that match the family and load an address of the header.
func loadAddress(side string, v6 bool) (proto []expr.Any, load *expr.Payload) {
	family, offset, size := byte(unix.NFPROTO_IPV4), uint32(12), uint32(4)
	if v6 {
		family, offset, size = unix.NFPROTO_IPV6, 8, 16
	}
	if side == "daddr" {
		offset += size
	}
	return nfproto(family).exprs, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader,
		Offset: offset, Len: size}
}

// address matches an address against a prefix; op is "" or "!= ".
func address(side, op string, p netip.Prefix) clause {
	proto, load := loadAddress(side, p.Addr().Is6())
	text, name, cmp := p.String(), "ip ", expr.CmpOpEq
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	if p.Addr().Is6() {
		name = "ip6 "
	}
	if op != "" {
		cmp = expr.CmpOpNeq
	}
	data := p.Addr().AsSlice()[:p.Bits()/8] // all used prefixes end at a byte boundary
	load.Len = uint32(len(data))
	return clause{name + side + " " + op + text, append(proto, load, &expr.Cmp{Op: cmp, Register: 1, Data: data})}
}

func counter() clause { return clause{"counter", []expr.Any{&expr.Counter{}}} }

func verdict(kind expr.VerdictKind, text string) clause {
	return clause{text, []expr.Any{&expr.Verdict{Kind: kind}}}
}

func redirect(to uint16) clause {
	return clause{fmt.Sprintf("redirect to :%d", to), []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(to)},
		&expr.Redir{RegisterProtoMin: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}}}
}

func setZone() clause {
	return clause{fmt.Sprintf("ct zone set %d", Zone), []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint16(Zone)},
		&expr.Ct{Key: expr.CtKeyZONE, Register: 1, SourceRegister: true}}}
}

func inZone() clause {
	return clause{fmt.Sprintf("ct zone %d", Zone),
		[]expr.Any{&expr.Ct{Key: expr.CtKeyZONE, Register: 1}, equal(binaryutil.NativeEndian.PutUint16(Zone))}}
}

func setTimeout(name string) clause {
	return clause{fmt.Sprintf("ct timeout set %q", name),
		[]expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: name}}}
}
