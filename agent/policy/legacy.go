package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// legacyKind is the legacy policies of one kind for one proxy. Of several that concern one connection the one whose selectors
// name most tags wins: tags with a value count first, then those with "*", then the name that comes first.
type legacyKind struct {
	kind string
	out  map[string][]legacyOut // of policies whose sources the proxy is among, by the kuma.io/service of the destination
	in   [][]legacyIn           // by inbound: those whose destinations it is among, the strongest first
	self []legacyIn             // of policies that select proxies as a whole, the strongest first
}

type legacyOut struct {
	policy *resource.Resource
	spec   *resource.LegacyPolicy
	from   rank
}

type legacyIn struct {
	policy *resource.Resource
	to     rank
}

// rank counts the tags by which a selector matches.
type rank struct{ exact, any int }

func (r rank) add(o rank) rank { return rank{r.exact + o.exact, r.any + o.any} }

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.exact, o.exact), cmp.Compare(r.any, o.any))
}

// matchLegacy selects the legacy policies of a dataplane, but those of kinds that are replaced by one that rules it. It
// calls used for each.
func (x *Index) matchLegacy(dataplane *resource.Resource, ruled map[string]bool, used func(kind string, p *resource.Resource)) []legacyKind {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	var out []legacyKind
	tags := tagSets(x.View, dp)
	for i := range x.legacy {
		l := &x.legacy[i]
		if len(l.policies) == 0 || slices.ContainsFunc(l.replacedBy, func(k string) bool { return ruled[k] }) {
			continue
		}
		k := legacyKind{kind: l.kind, in: make([][]legacyIn, len(dp.Networking.Inbound))}
		for _, p := range l.policies {
			if spec, ok := p.Spec.(*resource.LegacyPolicy); ok && k.match(p, spec, tags) {
				used(l.kind, p)
			}
		}
		for _, in := range append(k.in, k.self) {
			slices.SortStableFunc(in, func(a, b legacyIn) int {
				return cmp.Or(b.to.compare(a.to), strings.Compare(a.policy.Name, b.policy.Name))
			})
		}
		out = append(out, k)
	}
	return out
}

// tagSets returns the tags of each inbound, nil for those that are ignored, and those of the gateway as the last.
func tagSets(v *mesh.View, dp *resource.Dataplane) []map[string]string {
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

// match notes a policy where it concerns the proxy, and reports whether it does.
func (k *legacyKind) match(p *resource.Resource, spec *resource.LegacyPolicy, tags []map[string]string) bool {
	found := false
	if r, ok := bestOf(spec.Sources, tags); ok {
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
	if r, ok := bestOf(spec.Selectors, tags); ok {
		k.self = append(k.self, legacyIn{p, r})
		found = true
	}
	for i := range k.in {
		if tags[i] == nil {
			continue
		}
		if r, ok := bestOf(spec.Destinations, tags[i:i+1]); ok {
			k.in[i] = append(k.in[i], legacyIn{p, r})
			found = true
		}
	}
	return found
}

// bestOf returns the best rank of any selector on any set of tags.
func bestOf(sel []resource.LegacySelector, sets []map[string]string) (rank, bool) {
	var best rank
	found := false
	for i := range sel {
		for _, tags := range sets {
			if tags == nil {
				continue
			}
			if r, ok := rankOf(sel[i].Match, tags); ok && (!found || r.compare(best) > 0) {
				best, found = r, true
			}
		}
	}
	return best, found
}

func rankOf(want, have map[string]string) (rank, bool) {
	var r rank
	for k, v := range want {
		h, ok := have[k]
		switch {
		case v == "*" && (ok || k == resource.TagService):
			r.any++
		case ok && h == v:
			r.exact++
		default:
			return rank{}, false
		}
	}
	return r, true
}
