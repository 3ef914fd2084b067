package envoy

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The resources of one name differ little between proxies: in the name of the proxy, in its tags,
// in a path. The first one is stored whole, as a Base. The others are stored as edits of it, which
// take about a tenth of the bytes.
//
// Edits begin with the length of the body as a varint. Instructions follow until the body is
// complete: the number of bytes to copy from the base, the number of literal bytes, these bytes,
// and the distance by which the position in the base moves. Numbers are varints, the distance is in
// zigzag form. The position begins at 0, and copied bytes as well as literal ones advance it.

const (
	minPacked = 192 // size of a body in bytes below which packing saves next to nothing
	resync    = 8   // number of equal bytes with which a copy begins
	window    = 256 // size in bytes of the part of the base in which a copy is searched
)

// Packed returns a resource that stores its difference to base, or nil if that would save less than
// half. The resource does not refer to body afterwards.
func Packed(name, version string, body []byte, refs *Refs, base *Base) *Resource {
	if base == nil || len(body) < minPacked {
		return nil
	}
	var buffer [512]byte
	edits, ok := appendEdits(buffer[:0], base.body, body)
	if !ok {
		return nil
	}
	if name == base.name {
		name = base.name
	}
	if refs.equal(base.refs) {
		refs = base.refs
	}
	return &Resource{Name: name, Version: version, edits: string(edits), base: base, refs: refs}
}

// Like returns a resource that is similar to r but may have another name, and stores its difference
// to what r stores whole if that saves enough. It does not refer to body afterwards.
func (r *Resource) Like(name, version string, body []byte, refs *Refs) *Resource {
	if out := Packed(name, version, body, refs, r.base); out != nil {
		return out
	}
	return Whole(name, version, bytes.Clone(body), refs)
}

// appendEdits appends the edits from base to body. It reports whether they take less than half of
// the bytes of body.
func appendEdits(b, base, body []byte) ([]byte, bool) {
	b = binary.AppendUvarint(b, uint64(len(body)))
	from := len(b)
	for i, j := 0, 0; i < len(body); {
		n := commonPrefix(body[i:], base[j:])
		i, j = i+n, j+n
		literal, to := i, j
		for ; i < len(body); i++ {
			if at := findCopy(body[i:], base, j, j+i-literal); at >= 0 {
				to = at
				break
			}
			if i-literal > len(body)/2 {
				return b, false
			}
		}
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(i-literal))
		b = append(b, body[literal:i]...)
		b = binary.AppendVarint(b, int64(to-(j+i-literal)))
		if j = to; len(b)-from > len(body)/2 {
			return b, false
		}
	}
	return b, true
}

// findCopy returns the position in base from which body can be copied, -1 if there is none nearby.
// It prefers the expected position to one near began, where the difference begins.
func findCopy(body, base []byte, began, expected int) int {
	if len(body) < resync {
		return -1
	}
	needle := body[:resync]
	if expected <= len(base)-resync && bytes.Equal(base[expected:expected+resync], needle) {
		return expected
	}
	from, to := max(0, began-window/4), min(len(base), expected+window)
	if from >= to {
		return -1
	}
	at := bytes.Index(base[from:to], needle)
	if at < 0 {
		return -1
	}
	return from + at
}

// commonPrefix returns the length of the longest common prefix in bytes.
func commonPrefix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// unpack appends the body that results from applying edits to base.
func unpack(b, base []byte, edits string) []byte {
	size, edits := uvarint(edits)
	for end, at := len(b)+size, 0; len(b) < end; {
		var n, move int
		n, edits = uvarint(edits)
		b = append(b, base[at:at+n]...)
		at += n
		n, edits = uvarint(edits)
		b = append(b, edits[:n]...)
		move, edits = uvarint(edits[n:])
		at += n + (int(uint(move)>>1) ^ -(move & 1))
	}
	return b
}

// uvarint reads a varint, and returns the rest.
func uvarint(s string) (n int, rest string) {
	for i, shift := 0, 0; i < len(s); i, shift = i+1, shift+7 {
		if n |= int(s[i]&0x7f) << shift; s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
	return n, ""
}
