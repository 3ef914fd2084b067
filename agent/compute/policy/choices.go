package policy

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Limits of [NewChoices]. Each zone proxy needs a filter chain for each choice.
const (
	maxChoices = 10_000
	maxLegacy  = 200_000 // examined pairs of a legacy policy and an outbound
)

// Choices are the tag sets by which proxies of a mesh may select among the endpoints of its tag
// services. With mTLS, proxies request each choice by a separate server name. Choices may include
// some that no proxy uses, because NewChoices does not evaluate which proxies a policy selects.
// Choices is immutable.
type Choices struct {
	// Cut names the first dataplane or policy whose choices exceeded the limit and were dropped. It
	// is zero if nothing was dropped.
	Cut resource.Key

	of map[string][]map[string]string
}

// Of returns the choices among the endpoints of a kuma.io/service value, in a fixed order. Each
// choice holds at least one tag in addition to the service; callers must not modify it. A nil
// Choices has none.
func (c *Choices) Of(service string) []map[string]string {
	if c == nil {
		return nil
	}
	return c.of[service]
}

// NewChoices collects the choices of the dataplanes' outbounds and of an index's policies. x must
// be an index of the same view, or nil for no policies.
func NewChoices(v *mesh.View, x *Index) *Choices {
	c := &chooser{view: v, out: &Choices{}, seen: map[string]bool{}, found: map[string][]choice{},
		explicit: map[string][]map[string]string{}}
	for r, dp := range resource.Specs[*resource.Dataplane](v.Dataplanes()) {
		for i := range dp.Networking.Outbound {
			c.outbound(r, &dp.Networking.Outbound[i])
		}
	}
	if x != nil {
		for i := range x.Plugins {
			c.plugin(x, &x.Plugins[i])
		}
	}
	c.out.of = make(map[string][]map[string]string, len(c.found))
	for service, list := range c.found {
		slices.SortFunc(list, func(a, b choice) int { return strings.Compare(a.key, b.key) })
		tags := make([]map[string]string, len(list))
		for i := range list {
			tags[i] = list[i].tags
		}
		c.out.of[service] = tags
	}
	return c.out
}

// choice is a tag set of a service. The key encodes the service and all tags.
type choice struct {
	key  string
	tags map[string]string
}

// chooser collects choices.
type chooser struct {
	view     *mesh.View
	out      *Choices
	n        int
	found    map[string][]choice            // by service
	seen     map[string]bool                // by key
	explicit map[string][]map[string]string // tags of outbounds with more than the service tag, each once, by service
	legacy   int                            // number of pairs examined
	plain    []string                       // all tag services that a proxy can have an outbound to, sorted
	key      []byte                         // scratch
	names    []string                       // scratch
}

// outbound adds the choice of an outbound of a dataplane.
func (c *chooser) outbound(r *resource.Resource, o *resource.Outbound) {
	service := o.Tags[resource.TagService]
	switch {
	case o.BackendRef != nil || service == "":
	case len(o.Tags) > 1:
		if c.add(r.Key, service, o.Tags) {
			c.explicit[service] = append(c.explicit[service], o.Tags)
		}
	case c.explicit[service] == nil:
		c.explicit[service] = []map[string]string{} // may have no workload and be rerouted
	}
}

// plugin adds the choices of the policies of a plugin.
func (c *chooser) plugin(x *Index, plugin *Plugin) {
	if plugin.Destinations != nil {
		for _, d := range plugin.Kinds {
			for _, p := range x.Policies(d.Kind) {
				c.refs(p, plugin.Destinations(p))
			}
		}
	}
	for i := range plugin.Legacy {
		l := &plugin.Legacy[i]
		if l.Destinations == nil {
			continue
		}
		for p, spec := range resource.Specs[*resource.LegacyPolicy](x.Policies(l.Kind)) {
			c.legacyPolicy(p, spec, l)
		}
	}
}

// refs adds the choices of references of a policy.
func (c *chooser) refs(p *resource.Resource, refs []BackendRef) {
	for i := range refs {
		if len(refs[i].Tags) == 0 {
			continue // selects all endpoints
		}
		if o, ok := c.view.Backend(p, refs[i]); ok && o.Service.ID.Kind == mesh.KindTag && len(o.Subset) > 0 {
			c.add(p.Key, o.Service.Tag, o.Subset)
		}
	}
}

// legacyPolicy adds the choices that a legacy policy creates for outbounds to its destinations. A
// destination with more than the service tag matches no outbound.
func (c *chooser) legacyPolicy(p *resource.Resource, spec *resource.LegacyPolicy, l *LegacyKind) {
	for i := range spec.Destinations {
		service, ok := spec.Destinations[i].Match[resource.TagService]
		switch {
		case !ok || len(spec.Destinations[i].Match) > 1:
			continue
		case service != "*":
			c.legacyOutbounds(p, l, service)
			continue
		}
		if c.plain == nil {
			c.plain = slices.Collect(maps.Keys(c.explicit))
			for _, s := range c.view.Services() {
				if s.ID.Kind == mesh.KindTag {
					c.plain = append(c.plain, s.Tag)
				}
			}
			slices.Sort(c.plain)
			c.plain = slices.Compact(c.plain)
		}
		for _, s := range c.plain {
			c.legacyOutbounds(p, l, s)
		}
	}
}

// legacyOutbounds adds the choices that a legacy policy creates for the outbounds to a service: the
// outbound without further tags, which also serves the virtual address, and those with explicit
// tags.
func (c *chooser) legacyOutbounds(p *resource.Resource, l *LegacyKind, service string) {
	look := func(tags map[string]string) {
		if c.legacy++; c.legacy > maxLegacy {
			c.cut(p.Key)
			return
		}
		c.refs(p, l.Destinations(p, tags))
	}
	look(map[string]string{resource.TagService: service})
	for _, tags := range c.explicit[service] {
		look(tags)
	}
}

// add adds a choice. tags may include the service. It returns false if the choice is known or
// dropped.
func (c *chooser) add(from resource.Key, service string, tags map[string]string) bool {
	c.names = c.names[:0]
	for k := range tags {
		if k != resource.TagService {
			c.names = append(c.names, k)
		}
	}
	slices.Sort(c.names)
	c.key = appendText(c.key[:0], service)
	for _, k := range c.names {
		c.key = appendText(appendText(c.key, k), tags[k])
	}
	if c.seen[string(c.key)] {
		return false
	}
	if c.n == maxChoices {
		c.cut(from)
		return false
	}
	c.n++
	key := string(c.key)
	c.seen[key] = true
	subset := make(map[string]string, len(c.names))
	for _, k := range c.names {
		subset[k] = tags[k]
	}
	c.found[service] = append(c.found[service], choice{key, subset})
	return true
}

func (c *chooser) cut(at resource.Key) {
	if c.out.Cut == (resource.Key{}) {
		c.out.Cut = at
	}
}

// appendText appends a string with its length, so that concatenations are unambiguous.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
