package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// legacyKind holds the legacy policies of one kind for one proxy. Only the policy whose selectors
// match with the most tags applies to a connection: tags with a value count first, then those with
// "*", then the alphabetically first name.
type legacyKind struct {
	kind string
	out  map[string][]legacyOut // policies with the proxy as a source, by the kuma.io/service of the destination
	in   [][]legacyIn           // by inbound: policies with it among their destinations, in order of decreasing precedence
	self []legacyIn             // policies that select whole proxies, in order of decreasing precedence
}

type legacyOut struct {
	policy *resource.Resource
	spec   *resource.LegacyPolicy
	from   precedence.Tags
}

type legacyIn struct {
	policy *resource.Resource
	to     precedence.Tags
}

// matchLegacy selects the legacy policies of a dataplane, limited to the kinds for which of returns
// true; a nil of selects all. It skips kinds that are superseded by a kind in ruled. It calls used
// for each selected policy.
func (x *Index) matchLegacy(s *selector, ruled map[string]bool, of func(kind string) bool,
	used func(kind string, p *resource.Resource)) []legacyKind {
	var out []legacyKind
	for i := range x.legacy {
		l := &x.legacy[i]
		if len(l.policies) == 0 || of != nil && !of(l.kind) ||
			slices.ContainsFunc(l.replacedBy, func(k string) bool { return ruled[k] }) {
			continue
		}
		k := legacyKind{kind: l.kind, in: make([][]legacyIn, len(s.dp.Networking.Inbound))}
		for _, p := range l.policies {
			if spec, ok := p.Spec.(*resource.LegacyPolicy); ok && k.match(p, spec, s.tags, s.shared) {
				used(l.kind, p)
			}
		}
		for _, in := range append(k.in, k.self) {
			slices.SortStableFunc(in, func(a, b legacyIn) int {
				return cmp.Or(b.to.Compare(a.to), strings.Compare(a.policy.Name, b.policy.Name))
			})
		}
		out = append(out, k)
	}
	return out
}

// TagSets returns the tags of each inbound, nil for ignored ones, followed by those of the gateway.
func TagSets(v *mesh.View, dp *resource.Dataplane) []map[string]string {
	n := &dp.Networking
	out := make([]map[string]string, len(n.Inbound)+1)
	for i := range n.Inbound {
		if n.Inbound[i].State != resource.InboundIgnored {
			out[i] = v.InboundTags(n.Inbound[i].Tags)
		}
	}
	if n.Gateway != nil {
		out[len(n.Inbound)] = v.InboundTags(n.Gateway.Tags)
	}
	return out
}

// match records where a policy applies to the proxy and reports whether it applies at all.
func (k *legacyKind) match(p *resource.Resource, spec *resource.LegacyPolicy, tags []map[string]string,
	shared [][]int) bool {
	found := false
	if r, ok := precedence.Best(spec.Sources, tags); ok {
		if k.out == nil {
			k.out = map[string][]legacyOut{}
		}
		for i := range spec.Destinations {
			service := spec.Destinations[i].Match[resource.TagService]
			if list := k.out[service]; len(list) == 0 || list[len(list)-1].policy != p {
				k.out[service] = append(list, legacyOut{p, spec, r})
			}
		}
		found = true
	}
	if r, ok := precedence.Best(spec.Selectors, tags); ok {
		k.self = append(k.self, legacyIn{p, r})
		found = true
	}
	for i := range k.in {
		if tags[i] == nil {
			continue
		}
		if r, ok := precedence.Best(spec.Destinations, ofListener(tags, shared, i)); ok {
			k.in[i] = append(k.in[i], legacyIn{p, r})
			found = true
		}
	}
	return found
}

// ofListener returns the tags of the inbounds that the listener of one inbound serves.
func ofListener(tags []map[string]string, shared [][]int, inbound int) []map[string]string {
	if shared == nil {
		return tags[inbound : inbound+1]
	}
	out := make([]map[string]string, len(shared[inbound]))
	for at, i := range shared[inbound] {
		out[at] = tags[i]
	}
	return out
}

// LegacySelection is the result of matching a legacy policy against a dataplane.
type LegacySelection struct {
	Selected bool
	Inbounds []int  // for inbound policies: the indexes of the selected inbounds
	Why      string // why nothing is selected; "" if something is
}

// SelectLegacy matches the selectors of a legacy policy against a dataplane: as a whole, as a
// source of connections, or, if inbound is set, as a destination. It does not check whether the
// policy is active or superseded.
func (x *Index) SelectLegacy(p, dataplane *resource.Resource, inbound bool) LegacySelection {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	spec, isLegacy := p.Spec.(*resource.LegacyPolicy)
	if !ok || !isLegacy {
		return LegacySelection{Why: "the resource is not a policy with sources and destinations or selectors"}
	}
	tags := TagSets(x.View, dp)
	have := x.View.ProxyTags(dp)
	if len(spec.Selectors) > 0 || !inbound {
		name, sel := "sources", spec.Sources
		if len(spec.Selectors) > 0 {
			name, sel = "selectors", spec.Selectors
		}
		if _, ok := precedence.Best(sel, tags); !ok {
			return LegacySelection{Why: name + ": " + whyLegacy(sel, have)}
		}
		return LegacySelection{Selected: true}
	}
	var out LegacySelection
	for i := range dp.Networking.Inbound {
		if tags[i] == nil {
			continue
		}
		if _, ok := precedence.Best(spec.Destinations, ofListener(tags, dp.Networking.SamePort(), i)); ok {
			out.Inbounds = append(out.Inbounds, i)
		}
	}
	switch out.Selected = len(out.Inbounds) > 0; {
	case out.Selected:
	case len(dp.Networking.Inbound) == 0:
		out.Why = "the policy applies to inbounds, and the dataplane has none"
	default:
		out.Why = "destinations: " + whyLegacy(spec.Destinations, have)
	}
	return out
}

// LegacyReaches reports whether the destinations of a legacy policy match a kuma.io/service.
func LegacyReaches(p *resource.Resource, service string) bool {
	spec, ok := p.Spec.(*resource.LegacyPolicy)
	if !ok {
		return false
	}
	_, ok = precedence.Best(spec.Destinations, []map[string]string{{resource.TagService: service}})
	return ok
}

// whyLegacy describes the tags that selectors require and the proxy does not have.
func whyLegacy(sel []resource.LegacySelector, have map[string][]string) string {
	if len(sel) != 1 {
		return fmt.Sprintf("none of the %d selectors matches the dataplane", len(sel))
	}
	if why := missingTag(sel[0].Match, have); why != "" {
		return why
	}
	return "no inbound of the dataplane has all tags that the policy requires"
}

// missingTag describes the first required tag that is missing. It returns "" if every tag is
// present on some inbound.
func missingTag(want map[string]string, have map[string][]string) string {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		switch {
		case slices.Contains(have[k], want[k]) || want[k] == "*" && (len(have[k]) > 0 || k == resource.TagService):
		case len(have[k]) == 0:
			return fmt.Sprintf("the policy requires the tag %s: %s, and the dataplane has no such tag", k, want[k])
		default:
			return fmt.Sprintf("the tag %s is %s, and the policy requires %s", k, strings.Join(have[k], ", "), want[k])
		}
	}
	return ""
}

// ServiceRule returns the rule for a service of the view, or nil.
func (k *KindRules) ServiceRule(s *mesh.Service) *Rule { return k.Outbound(serviceOf(s)) }

// SupersededAt returns the targetRef policy that overrides a field of legacy policies of the kind
// for connections to a service of the view, or nil.
func (l *LegacyKind) SupersededAt(r *Rules, s *mesh.Service, path string) *resource.Resource {
	if l.SupersededBy == nil {
		return nil
	}
	return l.SupersededBy(r, serviceOf(s), path)
}

func serviceOf(s *mesh.Service) draft.Service {
	return draft.Service{Kind: s.ID.Kind, Name: s.ID.Name, Protocol: string(s.Protocol), Resource: s.Resource,
		Section: s.Section, Port: s.Port, External: s.External}
}
