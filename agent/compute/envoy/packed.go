package envoy

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Resources of one name differ little from proxy to proxy: in the name of the proxy, in its tags,
// in a path. One of them is kept as it is, and the others as what differs from it: about a tenth of
// their bytes.
//
// The edits are the length of the body as varint, and then, until the body is whole: how many bytes
// are copied from the base, how many follow literally, these, and by how much the place in the base
// moves, all as varints, the last one in zigzag. The place begins at 0 and moves with what is
// copied and with what stands literally.

const (
	minPacked = 192 // bytes of a body below which packing saves next to nothing
	resync    = 8   // bytes that have to be alike for a copy to begin
	window    = 256 // bytes of the base in which a copy is looked for
)

// Packed makes a resource of a name and a version, whose body is kept as what differs from that of
// base. It returns nil where that would save less than half. The body is not kept.
func Packed(name, version string, body []byte, base *Resource) *Resource {
	if base == nil || base.base != nil || len(body) < minPacked {
		return nil
	}
	var room [512]byte
	edits, ok := appendEdits(room[:0], base.body, body)
	if !ok {
		return nil
	}
	if name == base.Name {
		name = base.Name
	}
	return &Resource{Name: name, Version: version, body: bytes.Clone(edits), base: base}
}

// appendEdits appends what makes body of base, and says whether that is less than half of it.
func appendEdits(b, base, body []byte) ([]byte, bool) {
	b = binary.AppendUvarint(b, uint64(len(body)))
	from := len(b)
	for i, j := 0, 0; i < len(body); {
		n := alike(body[i:], base[j:])
		i, j = i+n, j+n
		literal, to := i, j
		for ; i < len(body); i++ {
			if at := findAlike(body[i:], base, j, j+i-literal); at >= 0 {
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

// findAlike returns where the base goes on as body begins, -1 for nowhere near: at best at the
// place that is expected, else about where the difference began.
func findAlike(body, base []byte, began, expected int) int {
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

// alike returns how many bytes two texts have in common from their start on.
func alike(a, b []byte) int {
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

// unpack appends the body that edits make of base.
func unpack(b, base, edits []byte) []byte {
	size, k := binary.Uvarint(edits)
	edits = edits[k:]
	for end, at := len(b)+int(size), 0; len(b) < end; {
		n, k := binary.Uvarint(edits)
		edits = edits[k:]
		b = append(b, base[at:at+int(n)]...)
		at += int(n)
		n, k = binary.Uvarint(edits)
		b = append(b, edits[k:k+int(n)]...)
		edits = edits[k+int(n):]
		at += int(n)
		move, k := binary.Varint(edits)
		edits = edits[k:]
		at += int(move)
	}
	return b
}
