package draft

import "encoding/binary"

// NameSet is a set of names of resources that others may refer to. The zero value is empty.
type NameSet struct {
	names   map[string]struct{}
	lengths map[uint64]struct{}
	short   [128]bool // the same of the lengths that one byte holds
}

// Add puts a name into the set.
func (s *NameSet) Add(name string) {
	if name == "" {
		return
	}
	if s.names == nil {
		s.names, s.lengths = map[string]struct{}{}, map[uint64]struct{}{}
	}
	s.names[name] = struct{}{}
	n := uint64(len(name))
	s.lengths[n] = struct{}{}
	if n < uint64(len(s.short)) {
		s.short[n] = true
	}
}

// Len returns how many names the set has.
func (s *NameSet) Len() int { return len(s.names) }

// FirstIn returns the first name of the set that a resource holds as a whole string of its message,
// as a reference to another resource is: a byte that may be the key of a field of bytes, the
// length, the name (https://protobuf.dev/programming-guides/encoding/). Another string of the
// message may be the same by chance.
func (s *NameSet) FirstIn(r *Resource) (name string, ok bool) {
	body := r.Body()
	for i := 1; i < len(body); i++ {
		b := body[i]
		if b < 0x80 && !s.short[b] || !endsKey(body[:i]) {
			continue
		}
		n, size := binary.Uvarint(body[i:])
		if _, is := s.lengths[n]; size <= 0 || !is || n > uint64(len(body)-i-size) {
			continue
		}
		if _, ok := s.names[string(body[i+size:i+size+int(n)])]; ok {
			return string(body[i+size : i+size+int(n)]), true
		}
	}
	return "", false
}

// endsKey says whether bytes end with what may be the key of a field of bytes, of a number
// below 2048.
func endsKey(b []byte) bool {
	last := b[len(b)-1]
	return last < 0x80 && (last&7 == 2 || len(b) > 1 && b[len(b)-2] >= 0x80 && b[len(b)-2]&7 == 2)
}
