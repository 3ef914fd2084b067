package check

import (
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/substitution"
)

// A proxy with a thousand services has a thousand listeners that differ only in names. The shape of
// a resource is its wire form without names: it records only which names are equal to each other.
// Resources of one shape have the same findings if rules depend on nothing but the equality of
// names, and they have the same references under other names. So the check decodes one resource of
// each shape, and only walks the bytes of the others.
//
// shapeTypes lists the fields that hold names. All other fields belong to the shape.

// role is the meaning of a field for the shape.
type role uint8

const (
	byShape     role = iota // not a name; its bytes belong to the shape
	inside                  // a message with names
	packedIn                // a message in an Any, of one of several types
	plainName               // a name without further meaning
	ownName                 // the name of the resource
	refName                 // the name of another resource
	domain                  // the domain of a virtual host
	format                  // a valid format string
	ipv4                    // an address of the listener
	hostAddress             // an endpoint's IP address or host name; rules depend on which it is
	portNumber
	metadata // not subject to any rule
)

// shapeType lists the fields of a message type that hold names.
type shapeType struct {
	fields []shapeField // by number
	packed map[string]*shapeType
}

type shapeField struct {
	role role
	of   *shapeType
}

func (t *shapeType) field(n protowire.Number) shapeField {
	if t != nil && int(n) < len(t.fields) {
		return t.fields[n]
	}
	return shapeField{}
}

// These bytes begin no field, because no wire type has their low bits.
const (
	markName  = 0x06
	markInner = 0x07
	markEnd   = 0x00
)

const (
	maxNames     = 24  // per resource
	maxName      = 200 // bytes
	maxShapes    = 1024
	maxShapeSize = 8 << 10
)

// shaper separates the names of a resource from its shape.
type shaper struct {
	key    []byte
	names  []string // without duplicates
	refs   []int    // indexes of the names with refName
	own    int      // index of the resource's own name, or -1
	ip     netip.Addr
	port   uint32
	ips    int // number of addresses
	ports  int
	failed bool
}

// take computes the shape of a resource in s.key. It returns false for a resource without a usable
// shape.
func (s *shaper) take(k envoy.Kind, t *shapeType, body []byte) bool {
	*s = shaper{key: append(s.key[:0], byte(k)), names: s.names[:0], refs: s.refs[:0], own: -1}
	s.message(t, body, 0)
	return !s.failed && len(s.key) <= maxShapeSize && s.own >= 0
}

// takeInner computes the shape of a message inside a resource, which has no name.
func (s *shaper) takeInner(t *shapeType, body []byte) bool {
	if t == nil {
		return false
	}
	*s = shaper{key: s.key[:0], names: s.names[:0], refs: s.refs[:0], own: -1}
	s.message(t, body, 0)
	return !s.failed && len(s.key) <= maxShapeSize
}

func (s *shaper) message(t *shapeType, body []byte, depth int) {
	for len(body) > 0 && !s.failed {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			s.failed = true
			return
		}
		f := t.field(num)
		tag := body[:n]
		size := protowire.ConsumeFieldValue(num, typ, body[n:])
		if size < 0 || depth > 16 {
			s.failed = true
			return
		}
		field := body[:n+size]
		body = body[n+size:]
		switch {
		case f.role == portNumber && typ == protowire.VarintType:
			s.takePort(tag, field)
		case f.role == byShape || f.role == portNumber || typ != protowire.BytesType:
			s.key = append(s.key, field...)
		default:
			value, _ := protowire.ConsumeBytes(field[n:])
			s.value(f, tag, field, value, depth)
		}
	}
}

func (s *shaper) value(f shapeField, tag, field, value []byte, depth int) {
	switch f.role {
	case inside:
		s.key = append(append(s.key, markInner), tag...)
		s.message(f.of, value, depth+1)
		s.key = append(s.key, markEnd)
		return
	case packedIn:
		s.unpack(f.of, tag, field, value, depth)
		return
	case metadata:
		if !plainMetadata(value) {
			s.failed = true
		}
		s.key = append(append(s.key, markName), tag...)
		return
	case ipv4:
		s.ips++
		if a, err := netip.ParseAddr(string(value)); err == nil && a.Is4() {
			s.ip = a
			s.key = append(append(s.key, markName), tag...)
			return
		}
	case format:
		if list, err := substitution.ParseFormat(string(value)); err == nil && utf8.Valid(value) &&
			!slices.ContainsFunc(list, beyondGrammar) {
			s.key = append(append(s.key, markName), tag...)
			return
		}
	case hostAddress:
		if isName(value, false) {
			mark := byte('n')
			if _, err := netip.ParseAddr(string(value)); err == nil {
				mark = 'i'
			}
			s.name(f.role, tag, value)
			s.key = append(s.key, mark)
			return
		}
	default:
		if isName(value, f.role == domain) {
			s.name(f.role, tag, value)
			return
		}
	}
	s.key = append(s.key, field...)
}

// name removes a name and appends its index.
func (s *shaper) name(r role, tag, value []byte) {
	i := slices.IndexFunc(s.names, func(n string) bool { return n == string(value) })
	if i < 0 {
		if i = len(s.names); i == maxNames {
			s.failed = true
			return
		}
		s.names = append(s.names, string(value))
	}
	s.key = append(append(append(s.key, markName), tag...), byte(i))
	switch r {
	case ownName:
		s.own = i
	case refName:
		s.refs = append(s.refs, i)
	}
}

func (s *shaper) takePort(tag, field []byte) {
	s.ports++
	v, n := protowire.ConsumeVarint(field[len(tag):])
	if n < 0 || v == 0 || v > 65535 {
		s.key = append(s.key, field...)
		return
	}
	s.port = uint32(v)
	s.key = append(append(s.key, markName), tag...)
}

// unpack computes the shape of an Any in its canonical form: the type URL, then the value.
func (s *shaper) unpack(t *shapeType, tag, field, value []byte, depth int) {
	num, typ, n := protowire.ConsumeTag(value)
	if num != 1 || typ != protowire.BytesType {
		s.key = append(s.key, field...)
		return
	}
	url, m := protowire.ConsumeBytes(value[n:])
	if m < 0 {
		s.failed = true
		return
	}
	head, rest := value[:n+m], value[n+m:]
	inner, known := t.packed[string(url)]
	if num, typ, n = protowire.ConsumeTag(rest); !known || num != 2 || typ != protowire.BytesType {
		s.key = append(s.key, field...)
		return
	}
	body, m := protowire.ConsumeBytes(rest[n:])
	if m < 0 || n+m != len(rest) {
		s.key = append(s.key, field...)
		return
	}
	s.key = append(append(append(s.key, markInner), tag...), head...)
	s.message(inner, body, depth+1)
	s.key = append(s.key, markEnd)
}

// isName reports whether rules treat a text as a name, so that only its equality with other names
// matters.
func isName(b []byte, domain bool) bool {
	if len(b) == 0 || len(b) > maxName || strings.HasPrefix(string(b), xdstpScheme) {
		return false
	}
	for _, c := range b {
		if c <= ' ' || c > '~' || domain && (c == '*' || c >= 'A' && c <= 'Z') {
			return false
		}
	}
	return true
}

// plainMetadata reports whether metadata is in a common form that decodes and breaks no rule.
func plainMetadata(b []byte) bool {
	return eachField(b, func(num protowire.Number, entry []byte) bool {
		key := false
		return num == 1 && eachField(entry, func(num protowire.Number, v []byte) bool {
			if num == 1 {
				key = len(v) > 0 && utf8.Valid(v)
				return key
			}
			return num == 2 && plainStruct(v)
		}) && key
	})
}

// plainStruct reports whether b is a google.protobuf.Struct that holds only strings.
func plainStruct(b []byte) bool {
	return eachField(b, func(num protowire.Number, entry []byte) bool {
		return num == 1 && eachField(entry, func(num protowire.Number, v []byte) bool {
			switch num {
			case 1:
				return utf8.Valid(v)
			case 2:
				return eachField(v, func(num protowire.Number, text []byte) bool { return num == 3 && utf8.Valid(text) })
			}
			return false
		})
	})
}

// eachField calls fn with the fields of a message until it returns false. It reports whether all
// fields are length-delimited and fn accepted them.
func eachField(b []byte, fn func(protowire.Number, []byte) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return false
		}
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 || !fn(num, v) {
			return false
		}
		b = b[n+m:]
	}
	return true
}
