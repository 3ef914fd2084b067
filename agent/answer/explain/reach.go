package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Limits of a [Reachability].
const (
	maxReachGroups   = 50
	maxReachExamples = 4
	maxReachItems    = 100
)

// Reachability says which services of the mesh a dataplane reaches and why. Lists are never null.
type Reachability struct {
	Total     int `json:"total"` // services; each port of a service resource counts
	Reachable int `json:"reachable"`
	// Auto says whether permissions restrict the services that proxies of the mesh reach, and
	// AutoBy says what enables this.
	Auto   bool   `json:"auto"`
	AutoBy string `json:"autoBy"`
	// Groups are the services by reason: reachable ones first, then by descending size. MoreGroups
	// counts the omitted groups.
	Groups     []BackendGroup `json:"groups"`
	MoreGroups int            `json:"moreGroups,omitempty"`
	// Items are the services requested by name. MoreItems counts the omitted ones.
	Items     []Backend `json:"items"`
	MoreItems int       `json:"moreItems,omitempty"`
}

// BackendGroup is a set of services that are reachable, or not, for the same reason.
type BackendGroup struct {
	Why
	Count    int           `json:"count"`
	Examples []Destination `json:"examples"` // the first services by name
}

// Backend is one service.
type Backend struct {
	Destination
	Why
}

// Why says whether a service is reachable and why.
type Why struct {
	Reachable bool       `json:"reachable"`
	Cause     mesh.Cause `json:"cause"`
	Field     string     `json:"field,omitempty"`  // field of the dataplane or mesh that decides
	Policy    *Source    `json:"policy,omitempty"` // the permission that decides
	Reason    string     `json:"reason"`
}

// Reach returns the reachability of services from the dataplane. backend selects items by NAME,
// KIND/NAME, or KIND/NAME:PORT; "" selects none. If by is not nil, the groups contain only services
// that this policy decides about.
func (p *Proxy) Reach(backend string, by *resource.Resource) *Reachability {
	out := &Reachability{Groups: []BackendGroup{}, Items: []Backend{}}
	out.Auto, out.AutoBy = p.index.AutoReachable()
	reach := p.index.Reach(p.dataplane)
	groups := map[reachGroup]int{} // index into out.Groups
	for _, s := range p.index.View.Services() {
		v := reach.Of(s)
		out.Total++
		if v.Reachable {
			out.Reachable++
		}
		if backend != "" && isBackend(s, backend) {
			if len(out.Items) < maxReachItems {
				out.Items = append(out.Items, Backend{destinationOf(s), WhyReach(p.index, p.spec, s, v)})
			} else {
				out.MoreItems++
			}
		}
		if by != nil && (v.By.Policy == nil || v.By.Policy.Key != by.Key) {
			continue
		}
		id := reachGroup{v.Reachable, v.Cause, s.ID.Kind == mesh.KindTag, v.Entry, v.By}
		at, ok := groups[id]
		if !ok {
			at, groups[id] = len(out.Groups), len(out.Groups)
			out.Groups = append(out.Groups, BackendGroup{Why: WhyReach(p.index, p.spec, s, v), Examples: []Destination{}})
		}
		g := &out.Groups[at]
		if g.Count++; len(g.Examples) < maxReachExamples {
			g.Examples = append(g.Examples, destinationOf(s))
		}
	}
	// Groups that compare equal keep the order of their first service.
	slices.SortStableFunc(out.Groups, func(a, b BackendGroup) int {
		if a.Reachable != b.Reachable && a.Reachable {
			return -1
		} else if a.Reachable != b.Reachable {
			return 1
		}
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	if n := len(out.Groups) - maxReachGroups; n > 0 {
		out.Groups, out.MoreGroups = out.Groups[:maxReachGroups], n
	}
	return out
}

// reachGroup is the key of a [BackendGroup].
type reachGroup struct {
	reachable bool
	cause     mesh.Cause
	tag       bool
	entry     int
	by        policy.Origin
}

// isBackend reports whether a service has a name.
func isBackend(s *mesh.Service, name string) bool {
	if s.ID.Kind == mesh.KindTag {
		return s.Tag == name
	}
	full := s.ID.Kind + "/" + s.Resource.Name
	return name == s.Resource.Name || name == s.ID.Name || name == s.Labels[resource.LabelDisplayName] || name == full ||
		name == fmt.Sprintf("%s:%d", full, s.Port)
}

const tpPath = "networking.transparentProxying"

// WhyReach converts a reachability verdict to text.
func WhyReach(x *policy.Index, dataplane *resource.Dataplane, s *mesh.Service, v policy.ReachVerdict) Why {
	out := Why{Reachable: v.Reachable, Cause: v.Cause}
	tp := cmp.Or(dataplane.Networking.TransparentProxying, &resource.TransparentProxying{})
	list, entries := tpPath+".reachableServices", len(tp.ReachableServices)
	if s.ID.Kind != mesh.KindTag {
		list, entries = tpPath+".reachableBackends.refs", 0
		if tp.ReachableBackends != nil {
			entries = len(tp.ReachableBackends.Refs)
		}
	}
	if v.By.Policy != nil {
		out.Policy = &Source{Type: v.By.Policy.Kind, Mesh: v.By.Policy.Mesh, Name: v.By.Policy.Name,
			Field: fmt.Sprintf("spec.from[%d]", v.By.Item)}
	}
	at := fmt.Sprintf("%s[%d]", list, v.Entry)
	switch v.Cause {
	case mesh.CauseOpen:
		out.Reason = "services of this kind are not restricted"
	case mesh.CauseListed:
		out.Field, out.Reason = at, "listed in "+at
	case mesh.CauseLabels:
		out.Field, out.Reason = at, "selected by the labels of "+at
	case mesh.CauseOutbound:
		out.Field = fmt.Sprintf("networking.outbound[%d]", v.Entry)
		out.Reason = out.Field + " leads to it"
	case mesh.CausePermission:
		out.Reason = fmt.Sprintf("allowed by %s/%s %s", out.Policy.Type, out.Policy.Name, out.Policy.Field)
	case mesh.CauseNoSubject:
		out.Reason = "permissions cannot apply to it, so it remains reachable"
	case mesh.CauseNoPermission:
		out.Reason = "no permission allows the dataplane"
		if out.Policy != nil {
			out.Reason = fmt.Sprintf("denied by %s/%s %s", out.Policy.Type, out.Policy.Name, out.Policy.Field)
		}
	case mesh.CauseNotListed:
		has := cmp.Or(map[int]string{0: "no entries", 1: "1 entry"}[entries], fmt.Sprintf("%d entries", entries))
		out.Field, out.Reason = list, fmt.Sprintf("not listed in %s, which has %s", list, has)
		if s.ID.Kind != mesh.KindTag && tp.ReachableBackends == nil {
			out.Reason = "the dataplane has only " + tpPath + ".reachableServices and no reachableBackends"
		}
	case mesh.CauseMode:
		out.Field = "meshServices.mode"
		out.Reason = fmt.Sprintf("meshServices.mode %s of the mesh excludes it", x.View.Spec.ServicesMode())
		if x.View.Spec.ServicesMode() == resource.MeshServicesReachableBackends {
			out.Reason += " unless " + tpPath + ".reachableBackends lists it"
		}
	case mesh.CauseNoAddress:
		out.Reason = "it has no virtual address"
	case mesh.CauseNoEgress:
		out.Reason = "it is outside the mesh, and the zone has no egress for it"
	case mesh.CauseNoProxy:
		out.Reason = "the dataplane has no transparent proxy and no outbound to it"
	}
	return out
}

// ReachBy sets the reachability in the explanation of a policy: the services that a permission
// decides about, and the services selected by backend.
func (p *Proxy) ReachBy(r *resource.Resource, backend string, out *Policy) {
	on, _ := p.index.AutoReachable()
	plugin, _, _ := effect.KindOf(p.index, r.Kind)
	if backend != "" || on && plugin != nil && plugin.Admits != nil {
		out.Reach = p.Reach(backend, r)
	}
}
