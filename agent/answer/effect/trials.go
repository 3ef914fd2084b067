package effect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// idSet is a set of resources.
type idSet map[draft.ResourceID]bool

// changes are the resources that an edit of policies changes.
type changes struct {
	ids      idSet
	from, to *generate.Proxy // the configs before and after; nil unless a published config is judged
	ok       bool            // false if the limit of work was reached, or no config could be generated
}

// fieldSearch examines the fields of one policy on one proxy. It generates configs with one service
// of each class, and confirms the result with the whole config.
type fieldSearch struct {
	x       *Examiner
	p       *proxy
	policy  *resource.Resource
	entries []*entry
	doc     *document
	schema  map[string]any
	classes *reached
	only    []mesh.Outbound // of one service of each class that the policy may affect
	fixed   idSet           // resources that exist without outbounds
	ids     map[int]idSet   // resources of a class in addition to fixed
	bases   map[string]*generate.Proxy
	known   map[string]changes
	leaves  []*removed
	others  map[*removed][]*resource.Resource // the policy with another value of a field
}

// newFieldSearch returns nil if the policy has no document.
func newFieldSearch(x *Examiner, policy *resource.Resource, p *proxy) *fieldSearch {
	s := &fieldSearch{x: x, p: p, policy: policy, doc: newDocument(policy, x.options.Decode), ids: map[int]idSet{},
		bases: map[string]*generate.Proxy{}, known: map[string]changes{}, others: map[*removed][]*resource.Resource{}}
	if s.doc == nil {
		return nil
	}
	l := p.layout(x.mesh)
	s.entries = l.entries(policy)
	outbounds, _ := x.mesh.Policies.Outbounds(p.dataplane)
	var chosen []int
	for _, kind := range []string{"", policy.Kind} {
		s.classes = classify(l, outbounds, kind)
		if chosen = s.choose(); len(chosen) <= maxClasses {
			break
		}
	}
	s.only = s.classes.only(chosen[:min(len(chosen), 4*maxClasses)])
	if config, err := s.generate(nil, removal{}, []mesh.Outbound{}); err == nil {
		s.fixed = idsOf(config)
	}
	return s
}

// choose returns the classes that the policy may affect.
func (s *fieldSearch) choose() []int {
	chosen := map[int]bool{}
	for _, e := range s.entries {
		for _, at := range e.spots {
			for _, service := range at.services {
				chosen[s.classes.class[service.ID]] = true
			}
			if at.services == nil {
				for n := range s.classes.first {
					chosen[n] = true
				}
			}
		}
	}
	var out []int
	for n := range s.classes.first {
		if chosen[n] {
			out = append(out, n)
		}
	}
	return out
}

// generate generates the config of the proxy with some of its outbounds, without policies, and with
// another form of the examined policy; a zero removal stands for its present form.
func (s *fieldSearch) generate(without []resource.Key, r removal, only []mesh.Outbound) (*generate.Proxy, error) {
	m := s.x.mesh
	if len(without) > 0 {
		m = m.Without(without...)
	}
	if r.policy != nil {
		m = m.With(r.policy)
	}
	return s.x.generate(m.Only(only), s.p.dataplane.Name, nil)
}

// compare returns what a removal changes in the config with the examined outbounds and without some
// policies.
func (s *fieldSearch) compare(without []resource.Key, r removal) changes {
	key := fmt.Sprint(without)
	if r.policy == nil {
		without = append(slices.Clone(without), s.policy.Key)
	}
	full := key + "\x00"
	if r.policy != nil {
		full += string(r.policy.Digest[:])
	}
	if c, ok := s.known[full]; ok {
		return c
	}
	if s.x.spent() {
		return changes{}
	}
	var err error
	base, ok := s.bases[key]
	if !ok {
		list := without
		if r.policy == nil {
			list = without[:len(without)-1]
		}
		if base, err = s.generate(list, removal{}, s.only); err == nil {
			s.bases[key] = base
		}
	}
	var now *generate.Proxy
	if err == nil {
		now, err = s.generate(without, r, s.only)
	}
	c := changes{ok: err == nil}
	if c.ok {
		c.ids = difference(base, now)
		if s.p.published != nil {
			c.from, c.to = base, now
		}
	}
	s.known[full] = c
	return c
}

// whole returns what a removal changes in the whole config.
func (s *fieldSearch) whole(r removal) changes {
	key := "whole"
	m := s.x.mesh
	if r.policy != nil {
		key += string(r.policy.Digest[:])
		m = m.With(r.policy)
	} else {
		m = s.x.leaveOut(s.policy.Key)
	}
	if r.policy == nil && s.p.idle[s.policy.Key] {
		return changes{ok: true}
	}
	c, ok := s.known[key]
	if ok || s.x.spent() {
		return c
	}
	s.x.build(s.p)
	if s.p.err == nil {
		now, err := s.x.generate(m, s.p.dataplane.Name, s.p.config)
		if c.ok = err == nil; c.ok {
			c.ids = difference(s.p.config, now)
		}
	}
	s.known[key] = c
	return c
}

// difference returns the resources that differ between two configs.
func difference(from, to *generate.Proxy) idSet {
	out := idSet{}
	for _, c := range generate.Difference(from, to) {
		out[c.ResourceID] = true
	}
	return out
}

func idsOf(p *generate.Proxy) idSet {
	out := idSet{}
	for rank, list := range p.Sealed.Resources {
		for _, r := range list {
			out[draft.ResourceID{TypeURL: draft.Types[rank], Name: r.Name}] = true
		}
	}
	return out
}

// classIDs returns the resources of the first service of a class.
func (s *fieldSearch) classIDs(class int) idSet {
	if ids, ok := s.ids[class]; ok {
		return ids
	}
	var ids idSet
	if config, err := s.generate(nil, removal{}, s.classes.only([]int{class})); err == nil {
		ids = idsOf(config)
		for id := range s.fixed {
			delete(ids, id)
		}
	}
	s.ids[class] = ids
	return ids
}

// hits reports whether changes affect a spot, for the services of a class if it has outbounds.
func (s *fieldSearch) hits(c changes, at *spot, class int) bool {
	for id := range c.ids {
		switch {
		case at.only != nil:
			if at.only[id] {
				return true
			}
		case class >= 0:
			if s.classIDs(class)[id] {
				return true
			}
		case at.On == OnInbound:
			if s.ofInbound(id, at.inbound) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// ofInbound reports whether a resource belongs to an inbound, given by index.
func (s *fieldSearch) ofInbound(id draft.ResourceID, inbound int) bool {
	if !s.fixed[id] && !strings.HasPrefix(id.Name, "inbound:") && !strings.HasPrefix(id.Name, "localhost:") {
		return false
	}
	n := &s.p.spec.Networking
	if len(n.Inbound) == 1 {
		return true
	}
	in := &n.Inbound[inbound]
	if id.TypeURL == draft.TypeCluster {
		name := fmt.Sprintf("localhost:%d", cmp.Or(in.ServicePort, in.Port))
		return id.Name == name || strings.HasPrefix(id.Name, name+"_")
	}
	addr, err := netip.ParseAddr(cmp.Or(in.Address, n.Address))
	if err != nil {
		return false
	}
	name := "inbound:" + netip.AddrPortFrom(addr, uint16(in.Port)).String()
	return id.Name == name || strings.HasPrefix(id.Name, name+"#")
}
