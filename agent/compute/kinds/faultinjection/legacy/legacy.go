// Package legacy implements FaultInjection, which MeshFaultInjection replaces: its conf, effect,
// and migration.
package legacy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/faultinjection"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "FaultInjection"

// Conf is the conf of a FaultInjection.
type Conf struct {
	faultinjection.Fault
}

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(_ string, p mesh.Protocol) bool {
	return p.HTTP()
}

// Validate checks the fault.
func (c *Conf) Validate(v *resource.Validator) { c.Check(v, true) }

// Kind declares the kind and its effect.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "fault-injections", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		ReplacedBy: []string{faultinjection.Kind},
		Inbound:    true,
		AllApply:   true,
		Apply:      apply,
		Migrate:    migrate,
	}
}

// apply injects the faults of all FaultInjections of an inbound. Those with the most source tags
// come first.
func apply(c *policy.Context, d *draft.Draft) {
	for l := range toolkit.Listeners(d, draft.Inbound) {
		var filters []draft.Extension
		for _, p := range slices.SortedFunc(slices.Values(c.Rules.LegacyInbound(kind, l.Inbound)), precedence.BySources) {
			if conf := toolkit.LegacyConf[Conf](p); conf != nil {
				filters = append(filters, conf.Filter(toolkit.OfSources(p.Spec.(*resource.LegacyPolicy).Sources)))
			}
		}
		faultinjection.Inject(l, filters)
	}
}

// maxGroups limits the groups of inbounds, and of clients of one inbound, for which policies are
// created.
const maxGroups = 64

// old is a FaultInjection with its selectors.
type old struct {
	policy   *resource.Resource
	fault    faultinjection.Fault
	from, to []map[string]string // expanded, without "*"
}

// migrate returns MeshFaultInjections. All FaultInjections that match a request apply to it,
// whereas the strongest list of faults overrides the others with MeshFaultInjection. Therefore each
// group of inbounds and clients that several policies select gets one list with all their faults.
func migrate(in *policy.MigrateInput) policy.Migration {
	acting := successor.NewActing(in, successor.PlanOptions{
		Kinds: []string{faultinjection.Kind}, Inbound: true, SupersededBy: toolkit.SupersededByAny(in, faultinjection.Kind),
	})
	out := policy.Migration{Without: acting.Without, Changes: changes()}
	slices.SortFunc(acting.Policies, precedence.BySources)
	m := migration{in: in}
	for _, r := range acting.Policies {
		m.add(r)
	}
	groups, complete := successor.Closure(m.all(func(o *old) []map[string]string { return o.to }), maxGroups)
	groups = needed(groups, func(g map[string]string) []*old { return m.about(g) })
	units := successor.Group(in, groups, func(g map[string]string) string {
		list := m.about(g)
		if len(list) > 1 {
			return "faults-on-" + successor.Slug(g)
		}
		same := 0
		for _, o := range groups {
			if slices.Equal(m.about(o), list) {
				same++
			}
		}
		if same > 1 {
			return list[0].policy.Name + "-" + successor.Slug(g)
		}
		return list[0].policy.Name
	}, faultinjection.Kind)
	for _, u := range units {
		list := m.about(u.Match)
		p := policy.Migrated{Kind: faultinjection.Kind, Name: u.Name,
			Spec: &resource.Policy{TargetRef: toolkit.OfSidecars(u.Target)}}
		successor.AddNote(&p.Notes, acting.Note)
		if !complete {
			successor.AddNote(&p.Notes, fmt.Sprintf("there are more than %d groups of inbounds, so some that several policies "+
				"select have no policy", maxGroups))
		}
		for _, o := range list {
			p.From = append(p.From, o.policy.Key)
			for _, n := range m.notes[o] {
				successor.AddNote(&p.Notes, n)
			}
		}
		slices.SortFunc(p.From, resource.Key.Compare)
		p.Spec.From = m.clients(list, &p.Notes)
		out.Policies = append(out.Policies, p)
	}
	return out
}

// migration holds the FaultInjections in order of application.
type migration struct {
	in    *policy.MigrateInput
	old   []*old
	notes map[*old][]string
}

func (m *migration) add(r *resource.Resource) {
	spec, conf := r.Spec.(*resource.LegacyPolicy), toolkit.LegacyConf[Conf](r)
	if conf == nil {
		return
	}
	o := &old{policy: r, fault: conf.Fault}
	if b := conf.ResponseBandwidth; b != nil { // FaultInjection accepts mbps and gbps
		bandwidth := *b
		bandwidth.Limit = strings.NewReplacer("mbps", "Mbps", "gbps", "Gbps").Replace(b.Limit)
		o.fault.ResponseBandwidth = &bandwidth
	}
	if m.notes == nil {
		m.notes = map[*old][]string{}
	}
	for _, s := range []struct {
		selectors []resource.LegacySelector
		into      *[]map[string]string
	}{{spec.Sources, &o.from}, {spec.Destinations, &o.to}} {
		for i := range s.selectors {
			list, note := successor.Expand(m.in, s.selectors[i].Match)
			*s.into = append(*s.into, list...)
			n := m.notes[o]
			successor.AddNote(&n, note)
			m.notes[o] = n
		}
	}
	m.old = append(m.old, o)
}

func (m *migration) all(of func(*old) []map[string]string) []map[string]string {
	var out []map[string]string
	for _, o := range m.old {
		out = append(out, of(o)...)
	}
	return out
}

// about returns the policies that select all inbounds of a group.
func (m *migration) about(group map[string]string) []*old {
	return covering(m.old, group, func(o *old) []map[string]string { return o.to })
}

// covering returns the policies with a selector that covers a group.
func covering(list []*old, group map[string]string, of func(*old) []map[string]string) []*old {
	var out []*old
	for _, o := range list {
		if slices.ContainsFunc(of(o), func(s map[string]string) bool { return mesh.Contains(group, s) }) {
			out = append(out, o)
		}
	}
	return out
}

// needed drops groups whose enclosing groups have the same policies.
func needed(groups []map[string]string, about func(map[string]string) []*old) []map[string]string {
	var out []map[string]string
	for _, g := range groups {
		enclosing, same := 0, true
		for _, o := range groups {
			if len(o) < len(g) && mesh.Contains(g, o) {
				enclosing++
				same = same && slices.Equal(about(o), about(g))
			}
		}
		if enclosing == 0 || !same {
			out = append(out, g)
		}
	}
	return out
}

// clients returns an item for each group of clients, the largest groups first.
func (m *migration) clients(list []*old, notes *[]string) []resource.PolicyItem {
	from := func(o *old) []map[string]string { return o.from }
	var all []map[string]string
	for _, o := range list {
		all = append(all, o.from...)
	}
	groups, complete := successor.Closure(all, maxGroups)
	if !complete {
		successor.AddNote(notes, fmt.Sprintf("there are more than %d groups of clients, so some that several policies "+
			"select get the faults of only one", maxGroups))
	}
	groups = needed(groups, func(g map[string]string) []*old { return covering(list, g, from) })
	var out []resource.PolicyItem
	successor.AddNote(notes, m.several(groups))
	for _, g := range groups {
		if len(g) == 0 {
			successor.AddNote(notes, "the faults for all clients also apply to clients outside the mesh, which send no tags; "+
				"FaultInjection applied only to clients with tags")
		}
		faults := []faultinjection.Fault{}
		for _, o := range covering(list, g, from) {
			faults = append(faults, o.fault)
		}
		if len(faults) > faultinjection.MaxFaults {
			successor.AddNote(notes,
				fmt.Sprintf("some clients have %d faults, and MeshFaultInjection accepts %d, so the others were dropped",
					len(faults), faultinjection.MaxFaults))
			faults = faults[:faultinjection.MaxFaults]
		}
		out = append(out, resource.PolicyItem{TargetRef: successor.ClientTarget(g),
			Conf: &faultinjection.Conf{HTTP: &faults}})
	}
	return out
}

// several returns a note about a dataplane that is in several groups because a tag has several
// values; "" if there is none.
func (m *migration) several(groups []map[string]string) string {
	for _, d := range m.in.Index.View.Dataplanes() {
		dp, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		tags := m.in.Index.View.ProxyTags(dp)
		for _, k := range slices.Sorted(maps.Keys(tags)) {
			matched := map[string]bool{}
			for _, g := range groups {
				if v, ok := g[k]; ok && slices.Contains(tags[k], v) {
					matched[v] = true
				}
			}
			if len(matched) > 1 {
				return fmt.Sprintf("a client with several values of %s, such as the dataplane %s, gets the faults of each of its "+
					"groups, some of them twice", k, d.Name)
			}
		}
	}
	return ""
}

// changes explains the differences between the config of MeshFaultInjection and FaultInjection.
func changes() []policy.Change {
	const (
		filter = "Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/httpFilters/" +
			"envoy.filters.http.fault*"
		all    = "faults for all clients no longer match tags, so they also apply to clients outside the mesh"
		groups = "each group of clients has separate filters, which do not overlap, with the faults of all its policies"
	)
	return []policy.Change{
		{Path: filter + "/typedConfig/headers", Before: policy.Any, Why: all},
		{Path: filter, Before: policy.Any, After: policy.Any, Why: groups},
		{Path: filter + "/**", Before: policy.Any, After: policy.Any, Why: groups},
	}
}
