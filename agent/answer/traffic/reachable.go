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

// ReachableOptions say what is proposed beside what was used.
type ReachableOptions struct {
	Permitted bool // what permissions allow
	Keep      bool // what is listed today
}

// Why a service is proposed, or not.
const (
	WhyUsed      = "used"
	WhyUnlogged  = "not logged"      // no log shows whether it is used, and it is reachable today
	WhyListed    = "listed"          // today, and --keep is given, or the list would be empty and mean all
	WhyPermitted = "permitted"       // and --permitted is given
	WhyDenied    = "not permitted"   // it was used: not proposed
	WhyUnused    = "not used"        // listed today: not proposed
	WhyNever     = "never used"      // a permission allows it: not proposed
	WhyOutbound  = "listed outbound" // it was used, by an outbound of the Dataplane, which needs no entry: not proposed
)

// ReachableProposal is what a Dataplane is to list as reachable. Lists are never null.
type ReachableProposal struct {
	Mesh      string `json:"mesh"`
	Dataplane string `json:"dataplane"`
	// ReachableServices is proposed for networking.transparentProxying.reachableServices, and
	// ReachableBackends for reachableBackends.refs; null where that field is not to be there.
	ReachableServices []string                       `json:"reachableServices"`
	ReachableBackends []resource.ReachableBackendRef `json:"reachableBackends"`
	// Fragment is that as YAML with comments; "" where there is nothing to propose.
	Fragment string     `json:"fragment"`
	Backends []Evidence `json:"backends"` // what is proposed, then what is not
	Direct   []Direct   `json:"direct"`   // instances that were dialled past the mesh
	Unknown  []Unknown  `json:"unknown"`  // names in lines that are no services of the mesh
	Lines    LineCounts `json:"lines"`
	Notes    []string   `json:"notes"`
}

// Evidence is what speaks for a service.
type Evidence struct {
	explain.Destination
	Proposed bool   `json:"proposed"`
	Why      string `json:"why"`
	Lines    int    `json:"lines"`
	Shared   int    `json:"shared"` // of these, lines that may be about another service of the same name
	Times
	Permission string `json:"permission"` // allowed, denied or open
	Reachable  bool   `json:"reachable"`  // today
	// Unlisted is true for what was used, and may be, though a list of the Dataplane keeps it out.
	Unlisted bool   `json:"unlisted"`
	Reason   string `json:"reason"` // why it is reachable today or not
}

// Direct is an instance that was dialled by its own address.
type Direct struct {
	Address  netip.AddrPort        `json:"address"`
	Lines    int                   `json:"lines"`
	Backends []explain.Destination `json:"backends"` // whose instance it is
	Times
}

// Unknown is a name that is no service of the mesh.
type Unknown struct {
	Name  string `json:"name"`
	Lines int    `json:"lines"`
	Times
}

// Unlisted reports whether something was used that a list of the Dataplane keeps out.
func (p *ReachableProposal) Unlisted() bool {
	return slices.ContainsFunc(p.Backends, func(e Evidence) bool { return e.Unlisted })
}

// Propose says what the Dataplane is to list.
func (u *Usage) Propose(o ReachableOptions) (*ReachableProposal, error) {
	b := u.backends
	p := &ReachableProposal{Mesh: b.Mesh, Dataplane: b.Name, Backends: []Evidence{}, Direct: []Direct{},
		Unknown: []Unknown{},
		Lines:   u.Lines, Notes: []string{}}
	logged := map[int]coverage{}
	for _, x := range u.outlets {
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
	u.keepServices(p, items, evidence)
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

// excluded reports whether the mode of the mesh leaves a service out, whatever is listed: a value
// of kuma.io/service is then none.
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

// keepServices keeps the values of kuma.io/service that are listed today where none else is
// proposed: a list of them cannot be empty, and without one all would be reachable.
func (u *Usage) keepServices(p *ReachableProposal, items []int, evidence map[int]*Evidence) {
	tag := func(i int) bool { return u.backends.Items[i].Kind == mesh.KindTag }
	if !u.backends.ListsServices ||
		slices.ContainsFunc(items, func(i int) bool { return tag(i) && evidence[i].Proposed }) {
		return
	}
	kept := false
	for _, i := range items {
		if e := evidence[i]; tag(i) && e.Why == WhyUnused {
			e.Proposed, e.Why, kept = true, WhyListed, true
		}
	}
	if kept {
		p.note("no value of kuma.io/service was used; those of reachableServices are kept, " +
			"since an empty list of them means all")
	}
}

func (p *ReachableProposal) note(text string) { p.Notes = append(p.Notes, text) }

// lists sets the lists, where there is anything to go by.
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
		p.note("no value of kuma.io/service was used; without reachableServices all of them stay reachable, " +
			"since an empty list of them means all")
	}
}
