package effect

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// maxClasses limits the classes of services of which each is examined separately. Beyond it,
// services with the same protocol and the same rule of the kind count as one class.
const maxClasses = 24

// reached groups the services that a proxy can call.
type reached struct {
	outbounds []mesh.Outbound
	of        map[mesh.ServiceID][]int // indexes in outbounds
	class     map[mesh.ServiceID]int
	first     []mesh.ServiceID // of each class
}

// classify groups services for which all policies have the same effect: those with the same
// protocol, kind, rules, and kinds of endpoints. If kind is not "", only its rules count.
func classify(l *layout, outbounds []mesh.Outbound, kind string) *reached {
	c := &reached{outbounds: outbounds, of: map[mesh.ServiceID][]int{}, class: map[mesh.ServiceID]int{}}
	for i := range outbounds {
		id := outbounds[i].Service.ID
		c.of[id] = append(c.of[id], i)
	}
	k := keyer{l: l, rules: map[*policy.Rule]uint64{}, policies: map[*resource.Resource]uint64{}}
	for i := range l.index.Plugins {
		p := &l.index.Plugins[i]
		for j := range p.Kinds {
			if r := l.rules.Kind(p.Kinds[j].Kind); r != nil && (kind == "" || kind == r.Kind) {
				k.kinds = append(k.kinds, r)
			}
		}
		for j := range p.Legacy {
			if kind == "" || kind == p.Legacy[j].Kind {
				k.legacy = append(k.legacy, p.Legacy[j].Kind)
			}
		}
	}
	classes := map[string]int{}
	for _, s := range l.services {
		key := k.key(s, c, kind == "")
		n, ok := classes[key]
		if !ok {
			n = len(c.first)
			classes[key] = n
			c.first = append(c.first, s.ID)
		}
		c.class[s.ID] = n
	}
	return c
}

// only returns the outbounds of the first service of each of the given classes.
func (c *reached) only(classes []int) []mesh.Outbound {
	var list []int
	for _, n := range classes {
		list = append(list, c.of[c.first[n]]...)
	}
	slices.Sort(list) // by address
	out := make([]mesh.Outbound, len(list))
	for i, j := range list {
		out[i] = c.outbounds[j]
	}
	return out
}

// keyer computes keys of classes.
type keyer struct {
	l        *layout
	kinds    []*policy.KindRules
	legacy   []string
	rules    map[*policy.Rule]uint64
	policies map[*resource.Resource]uint64
	b        []byte
}

func (k *keyer) text(s string) {
	k.b = binary.AppendUvarint(k.b, uint64(len(s)))
	k.b = append(k.b, s...)
}

func number[K comparable](in map[K]uint64, of K) uint64 {
	n, ok := in[of]
	if !ok {
		n = uint64(len(in))
		in[of] = n
	}
	return n
}

// key returns the key of a service's class. Each destination outside the mesh is a separate class.
func (k *keyer) key(s *mesh.Service, c *reached, whole bool) string {
	k.b = k.b[:0]
	k.text(s.ID.Kind)
	k.text(string(s.Protocol))
	for _, is := range [...]bool{s.External, s.Egress, s.Denied, s.Index < 0, s.TLSNotReady, s.Outside != nil} {
		k.b = append(k.b, fmt.Sprint(is)[0])
	}
	if s.External || s.Outside != nil {
		k.text(s.ID.Name)
	}
	for _, r := range k.kinds {
		k.b = binary.AppendUvarint(k.b, number(k.rules, r.ServiceRule(s)))
	}
	for _, kind := range k.legacy {
		k.b = binary.AppendUvarint(k.b, number(k.policies, k.l.rules.LegacyOutbound(kind, s.ID.Name)))
	}
	if !whole {
		return string(k.b)
	}
	for _, i := range c.of[s.ID] {
		o := &c.outbounds[i]
		k.b = append(k.b, byte(o.Address.BitLen()))
		k.tags(o.Tags)
		k.tags(o.Subset)
	}
	if s.Endpoints != nil {
		var last string
		for i := range s.Endpoints.List {
			e := &s.Endpoints.List[i]
			at := len(k.b)
			k.text(e.Zone)
			k.tags(e.Tags)
			if now := string(k.b[at:]); now == last {
				k.b = k.b[:at]
			} else {
				last = now
			}
		}
	}
	return string(k.b)
}

// tags adds tags without the service.
func (k *keyer) tags(m map[string]string) {
	if m == nil {
		k.b = append(k.b, 0)
		return
	}
	k.b = append(k.b, 1)
	names := make([]string, 0, len(m))
	for name := range m {
		if name != resource.TagService {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		k.text(name)
		k.text(m[name])
	}
	k.b = append(k.b, 0)
}

// group is the services of a class.
type group struct {
	class    int
	services []*mesh.Service
}

// split groups services by their classes, in order of their first service.
func (c *reached) split(services []*mesh.Service) []group {
	var out []group
	for _, s := range services {
		n := c.class[s.ID]
		i := slices.IndexFunc(out, func(g group) bool { return g.class == n })
		if i < 0 {
			i = len(out)
			out = append(out, group{class: n})
		}
		out[i].services = append(out[i].services, s)
	}
	return out
}
