package traffic

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// ReachableOptions selects which services are proposed in addition to the used ones.
type ReachableOptions struct {
	Permitted bool // services that permissions allow
	Keep      bool // services that are currently listed
}

// Reasons why a service is proposed or not.
const (
	WhyUsed      = "used"
	WhyUnlogged  = "not logged"      // not logged but reachable today: proposed
	WhyListed    = "listed"          // listed today, with --keep, or because an empty list would mean all: proposed
	WhyPermitted = "permitted"       // with --permitted: proposed
	WhyDenied    = "not permitted"   // used but denied: not proposed
	WhyUnused    = "not used"        // listed today: not proposed
	WhyNever     = "never used"      // allowed by a permission: not proposed
	WhyOutbound  = "listed outbound" // used through an outbound of the Dataplane, which needs no entry: not proposed
)

// ReachableProposal proposes the reachable services of a Dataplane. Lists are never null.
type ReachableProposal struct {
	Mesh      string `json:"mesh"`
	Dataplane string `json:"dataplane"`
	// ReachableServices is proposed for networking.transparentProxying.reachableServices and
	// ReachableBackends for reachableBackends.refs. Null means that the field should be absent.
	ReachableServices []string                       `json:"reachableServices"`
	ReachableBackends []resource.ReachableBackendRef `json:"reachableBackends"`
	// Fragment contains both as YAML with comments; "" if nothing is proposed.
	Fragment string     `json:"fragment"`
	Backends []Evidence `json:"backends"` // proposed services, then the others
	Direct   []Direct   `json:"direct"`   // instances dialed by their own address
	Unknown  []Unknown  `json:"unknown"`  // names in lines that are not services of the mesh
	Lines    LineCounts `json:"lines"`
	Notes    []string   `json:"notes"`
}

// Evidence is the usage of a service with the decision about it.
type Evidence struct {
	explain.Destination
	Proposed bool   `json:"proposed"`
	Why      string `json:"why"`
	Lines    int    `json:"lines"`
	Shared   int    `json:"shared"` // lines that may be about another service of the same name
	Times
	Permission string `json:"permission"` // allowed, denied or open
	Reachable  bool   `json:"reachable"`  // today
	// Unlisted is set if the service was used and is permitted, but the Dataplane's list excludes
	// it.
	Unlisted bool   `json:"unlisted"`
	Reason   string `json:"reason"` // why it is reachable today or not
}

// Direct is an instance that the workload dialed by its own address.
type Direct struct {
	Address  netip.AddrPort        `json:"address"`
	Lines    int                   `json:"lines"`
	Backends []explain.Destination `json:"backends"` // services with this instance
	Times
}

// Unknown is a name that is not a service of the mesh.
type Unknown struct {
	Name  string `json:"name"`
	Lines int    `json:"lines"`
	Times
}

// Unlisted reports whether a used service is excluded by a list of the Dataplane.
func (p *ReachableProposal) Unlisted() bool {
	return slices.ContainsFunc(p.Backends, func(e Evidence) bool { return e.Unlisted })
}

// Propose computes the services that the Dataplane should list.
func (u *Usage) Propose(o ReachableOptions) (*ReachableProposal, error) {
	b := u.backends
	p := &ReachableProposal{Mesh: b.Mesh, Dataplane: b.Name, Backends: []Evidence{}, Direct: []Direct{},
		Unknown: []Unknown{},
		Lines:   u.Lines, Notes: []string{}}
	logged := map[int]coverage{}
	for _, x := range u.listeners {
		for _, i := range x.backends {
			if was, ok := logged[i]; !ok || x.logged < was {
				logged[i] = x.logged
			}
		}
	}
	var items []int
	evidence := map[int]*Evidence{}
	for i := range b.Items {
		x := &b.Items[i]
		if excluded(x) {
			continue
		}
		listed := x.Reachable && (x.Cause == mesh.CauseListed || x.Cause == mesh.CauseLabels)
		level, served := logged[i]
		hit := u.hits[i]
		e := &Evidence{Destination: x.Destination, Permission: x.Permission, Reachable: x.Reachable, Reason: x.Reason}
		denied := x.Permission == explain.PermissionDenied
		switch {
		case hit != nil && denied:
			e.Why = WhyDenied
		case hit != nil && x.Cause == mesh.CauseOutbound:
			e.Why = WhyOutbound
		case hit != nil:
			e.Proposed, e.Why = true, WhyUsed
		case denied:
			if !listed {
				continue
			}
			e.Why = WhyUnused
		case served && level < all && x.Reachable && x.Cause != mesh.CauseOutbound:
			e.Proposed, e.Why = true, WhyUnlogged
		case listed:
			e.Proposed, e.Why = o.Keep, WhyUnused
			if o.Keep {
				e.Why = WhyListed
			}
		case x.Permission == explain.PermissionAllowed:
			e.Proposed, e.Why = o.Permitted, WhyNever
			if o.Permitted {
				e.Why = WhyPermitted
			}
		default:
			continue
		}
		if hit != nil {
			e.Lines, e.Shared, e.Times = hit.Lines, hit.Shared, hit.times()
			e.Unlisted = !denied && !x.Reachable && (x.Cause == mesh.CauseNotListed || x.Cause == mesh.CauseMode)
		}
		items, evidence[i] = append(items, i), e
	}
	u.retainServices(p, items, evidence)
	p.lists(b, items, evidence, len(u.hits) > 0 || o.Permitted || o.Keep)
	for _, i := range items {
		p.Backends = append(p.Backends, *evidence[i])
	}
	slices.SortStableFunc(p.Backends, func(a, b Evidence) int {
		return cmp.Or(cmp.Compare(toInt(b.Proposed), toInt(a.Proposed)), cmp.Compare(b.Lines, a.Lines),
			compareDestinations(a.Destination, b.Destination))
	})
	for _, a := range slices.SortedFunc(maps.Keys(u.direct), netip.AddrPort.Compare) {
		d := Direct{Address: a, Lines: u.direct[a].Lines, Times: u.direct[a].times(), Backends: []explain.Destination{}}
		for _, i := range u.lookup.instance[a] {
			d.Backends = append(d.Backends, b.Items[i].Destination)
		}
		p.Direct = append(p.Direct, d)
	}
	for _, name := range slices.Sorted(maps.Keys(u.unknown)) {
		p.Unknown = append(p.Unknown, Unknown{name, u.unknown[name].Lines, u.unknown[name].times()})
	}
	return p, p.write(b, items, evidence)
}

// excluded reports whether the mesh's mode excludes a service regardless of lists: kuma.io/service
// values are not services then.
func excluded(x *explain.CallableBackend) bool {
	return x.Kind == mesh.KindTag && x.Cause == mesh.CauseMode
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func compareDestinations(a, b explain.Destination) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
}

// retainServices keeps the currently listed kuma.io/service values if no other is proposed. An
// empty list is not possible: without a list, all values are reachable.
func (u *Usage) retainServices(p *ReachableProposal, items []int, evidence map[int]*Evidence) {
	tag := func(i int) bool { return u.backends.Items[i].Kind == mesh.KindTag }
	if !u.backends.ListsServices ||
		slices.ContainsFunc(items, func(i int) bool { return tag(i) && evidence[i].Proposed }) {
		return
	}
	retained := false
	for _, i := range items {
		if e := evidence[i]; tag(i) && e.Why == WhyUnused {
			e.Proposed, e.Why, retained = true, WhyListed, true
		}
	}
	if retained {
		p.note("no value of kuma.io/service was used; reachableServices is unchanged, " +
			"because an empty list means all services")
	}
}

func (p *ReachableProposal) note(text string) { p.Notes = append(p.Notes, text) }

// lists sets the lists of the proposal if there is evidence.
func (p *ReachableProposal) lists(b *explain.Backends, items []int, evidence map[int]*Evidence, any bool) {
	if !any {
		return
	}
	resources, tags, proposed := b.ListsBackends, false, 0
	for i := range b.Items {
		resources = resources || b.Items[i].Ref != nil
		tags = tags || b.Items[i].Ref == nil && !excluded(&b.Items[i])
	}
	if resources {
		p.ReachableBackends = []resource.ReachableBackendRef{}
	}
	for _, i := range items {
		if !evidence[i].Proposed {
			continue
		}
		proposed++
		if ref := b.Items[i].Ref; ref != nil {
			p.ReachableBackends = append(p.ReachableBackends, *ref)
		} else {
			p.ReachableServices = append(p.ReachableServices, b.Items[i].Name)
		}
	}
	if proposed == 0 {
		p.ReachableBackends = nil
		return
	}
	if tags && len(p.ReachableServices) == 0 {
		p.note("no value of kuma.io/service was used; without reachableServices all values remain reachable, " +
			"because an empty list means all services")
	}
}
