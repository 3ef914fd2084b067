package generate

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"weak"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// part is some outbounds of a proxy as they were made and sealed, with all that their making took
// from the generator and left in it: made again where that is the same, it would come out the same.
// It is used again for the same proxy when other parts of it change, and for other proxies of one
// mesh that have the same rules. It is immutable once it is made.
type part struct {
	of     []mesh.Outbound
	sealed draft.Part

	taken    []taken // clusters, whether they were there before
	claimed  []taken // what plugins have claimed, whether it was before
	versions []answer
	refs     []endpointRef
	backends []backend
	notes    []mesh.Warning
	located  []located
	tls      bool // something refers to the secrets
	own      bool // it may be of its proxy alone
}

type (
	// taken is a name that was asked for.
	taken struct {
		name   string
		before bool // it was taken already
		takes  bool // the part takes it
	}
	// answer is what was said of the version of an Envoy.
	answer struct {
		from finding.Version
		is   bool
	}
	located struct {
		cluster    string
		localities *policy.Localities
	}
)

// Sizes of parts, in outbounds. They end where the address of an outbound says so, so that one that
// comes or goes in the middle leaves the parts behind it as they are. The first one is small: it is
// made together with all that is not an outbound, each time.
const (
	firstPart = partSize / 4
	minPart   = partSize / 2
	maxPart   = partSize * 2
)

// cutParts cuts a list of outbounds into parts.
func cutParts(list []mesh.Outbound) func(yield func([]mesh.Outbound) bool) {
	return func(yield func([]mesh.Outbound) bool) {
		least := firstPart
		if len(list) <= partSize {
			least = partSize
		}
		for ; len(list) > 0; least = minPart {
			n := min(least, len(list))
			for least == minPart && n < min(maxPart, len(list)) && placeOf(&list[n-1])%(partSize/2) != 0 {
				n++
			}
			if !yield(list[:n:n]) {
				return
			}
			list = list[n:]
		}
	}
}

func placeOf(o *mesh.Outbound) uint32 {
	h := fnv.New32a()
	b, _ := o.Address.AppendBinary(make([]byte, 0, 24)) // that of an address never fails
	_, _ = h.Write(binary.BigEndian.AppendUint32(b, o.Port))
	return h.Sum32()
}

// partKey is what parts of several proxies of one mesh have in common that may be the same.
type partKey struct {
	flavor   node.Flavor
	rules    [32]byte // fingerprint of the policies
	tags     [32]byte // of the dataplane, where more than the header of requests may depend on them
	ipv6     bool     // the proxy has such an address
	bind     bool
	tagged   bool // requests have a header with the tags
	inline   bool
	address  string // of the first outbound
	port     uint32
	outbound int // of them
}

// sharedParts are the parts of the proxies of a mesh, as long as what decides about all outbounds
// of it stays.
type sharedParts struct {
	spec     weak.Pointer[resource.Mesh]
	upgrades bool
	zone     string
	made     map[partKey]weak.Pointer[part]
	limit    int // entries at which dead ones are dropped
}

// partsOf returns the parts that were made for the proxies of a mesh.
func (m *Memo) partsOf(v *mesh.View) *sharedParts {
	if m == nil {
		return nil
	}
	have, spec := m.parts[v.Name], weak.Make(v.Spec)
	if have == nil || have.spec != spec || have.upgrades != v.WebSockets || have.zone != v.Zone {
		have = &sharedParts{spec: spec, upgrades: v.WebSockets, zone: v.Zone, made: map[partKey]weak.Pointer[part]{},
			limit: 1024}
		m.parts[v.Name] = have
	}
	return have
}

func (s *sharedParts) get(k partKey) *part {
	if s == nil {
		return nil
	}
	return s.made[k].Value()
}

func (s *sharedParts) put(k partKey, p *part) {
	if s == nil {
		return
	}
	if len(s.made) >= s.limit {
		s.sweep()
	}
	s.made[k] = weak.Make(p)
}

func (s *sharedParts) sweep() {
	maps.DeleteFunc(s.made, func(_ partKey, p weak.Pointer[part]) bool { return p.Value() == nil })
	s.limit = max(1024, 2*len(s.made))
}

// onTop returns parts as parts of another list, in which each of their outbounds is the same, so
// that they keep nothing of earlier views.
func onTop(parts []*part, list []mesh.Outbound) []*part {
	out := make([]*part, 0, len(parts))
	for _, p := range parts {
		i := 0
		for i < len(list) && (list[i].Address != p.of[0].Address || list[i].Port != p.of[0].Port) {
			i++
		}
		if i+len(p.of) > len(list) {
			continue // it is made anew when it is needed
		}
		next := *p
		next.of = list[i : i+len(p.of) : i+len(p.of)]
		out, list = append(out, &next), list[i+len(p.of):]
	}
	return out
}
