package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// LegacySelection says what of a dataplane the selectors of a legacy policy match.
type LegacySelection struct {
	Selected bool
	Inbounds []int  // of policies about connections that arrive: the inbounds whose connections it concerns, by index
	Why      string // why nothing is selected, "" when something is
}

// SelectLegacy reports whether the selectors of a legacy policy match a dataplane: as a whole, or as a source of
// connections, or with inbound as a destination. Whether the policy acts at all, and which connections are left to it
// by others, is not looked at.
func (x *Index) SelectLegacy(p, dataplane *resource.Resource, inbound bool) LegacySelection {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	spec, isLegacy := p.Spec.(*resource.LegacyPolicy)
	if !ok || !isLegacy {
		return LegacySelection{Why: "it is not a policy with sources and destinations or selectors"}
	}
	tags := tagSets(x.View, dp)
	have := x.View.ProxyTags(dp)
	if len(spec.Selectors) > 0 || !inbound {
		name, sel := "sources", spec.Sources
		if len(spec.Selectors) > 0 {
			name, sel = "selectors", spec.Selectors
		}
		if _, ok := bestOf(sel, tags); !ok {
			return LegacySelection{Why: name + ": " + whyLegacy(sel, have)}
		}
		return LegacySelection{Selected: true}
	}
	var out LegacySelection
	for i := range dp.Networking.Inbound {
		if tags[i] == nil {
			continue
		}
		if _, ok := bestOf(spec.Destinations, tags[i:i+1]); ok {
			out.Inbounds = append(out.Inbounds, i)
		}
	}
	switch out.Selected = len(out.Inbounds) > 0; {
	case out.Selected:
	case len(dp.Networking.Inbound) == 0:
		out.Why = "it is about connections that arrive, and the dataplane has no inbounds"
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
	_, ok = bestOf(spec.Destinations, []map[string]string{{resource.TagService: service}})
	return ok
}

// whyLegacy says what selectors want that the tags of a proxy do not have.
func whyLegacy(sel []resource.LegacySelector, have map[string][]string) string {
	if len(sel) != 1 {
		return fmt.Sprintf("none of the %d selectors matches the dataplane", len(sel))
	}
	if why := missingTag(sel[0].Match, have); why != "" {
		return why
	}
	return "no inbound of the dataplane has all tags that the policy wants"
}

// missingTag names the first tag that is wanted and not there, "" when each is there by itself.
func missingTag(want map[string]string, have map[string][]string) string {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		switch {
		case slices.Contains(have[k], want[k]) || want[k] == "*" && (len(have[k]) > 0 || k == resource.TagService):
		case len(have[k]) == 0:
			return fmt.Sprintf("the policy wants the tag %s: %s, the dataplane has no such tag", k, want[k])
		default:
			return fmt.Sprintf("the tag %s is %s, the policy wants %s", k, strings.Join(have[k], ", "), want[k])
		}
	}
	return ""
}

// ServiceRule returns the rule about a service of the view, nil for none.
func (k *KindRules) ServiceRule(s *mesh.Service) *Rule { return k.Outbound(serviceOf(s)) }

// SupersededAt returns the targetRef policy that keeps a field of legacy policies of the kind from acting on the
// connections to a service of the view, nil for none.
func (l *LegacyKind) SupersededAt(r *Rules, s *mesh.Service, path string) *resource.Resource {
	if l.SupersededBy == nil {
		return nil
	}
	return l.SupersededBy(r, serviceOf(s), path)
}

func serviceOf(s *mesh.Service) draft.Service {
	return draft.Service{Kind: s.ID.Kind, Name: s.ID.Name, Protocol: string(s.Protocol), Resource: s.Resource, Section: s.Section, Port: s.Port, External: s.External}
}
