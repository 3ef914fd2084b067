// Package legacy is FaultInjection, which MeshFaultInjection replaces: its conf, its effect and its
// migration.
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
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "FaultInjection"

// Conf is what one FaultInjection does.
type Conf struct {
	faultinjection.Fault
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

// apply injects the faults of all FaultInjections about an inbound: those whose sources name most
// tags come first.
func apply(c *policy.Context, d *draft.Draft) {
	for l := range toolkit.Listeners(d, draft.Inbound) {
		var filters []draft.Extension
		for _, p := range slices.SortedFunc(slices.Values(c.Rules.LegacyInbound(kind, l.Inbound)), toolkit.BySources) {
			if conf := toolkit.LegacyConf[Conf](p); conf != nil {
				filters = append(filters, conf.Filter(toolkit.OfSources(p.Spec.(*resource.LegacyPolicy).Sources)))
			}
		}
		faultinjection.Inject(l, filters)
	}
}

// maxGroups bounds the groups of inbounds, and of clients of one of them, that policies are made
// for.
const maxGroups = 64

// old is a FaultInjection with its selectors.
type old struct {
	policy   *resource.Resource
	fault    faultinjection.Fault
	from, to []map[string]string // without "*"
}

// migrate makes MeshFaultInjections. All FaultInjections that match a request act on it, while of
// MeshFaultInjection the strongest list replaces the others: so for each group of inbounds and of
// clients that several policies are about there is a list with the faults of them all.
func migrate(in *policy.MigrateInput) policy.Migration {
	acting := in.Acting(policy.PlanOptions{
		Kinds: []string{faultinjection.Kind}, Inbound: true, SupersededBy: toolkit.SupersededByAny(in, faultinjection.Kind),
	})
	out := policy.Migration{Without: acting.Without, Changes: changes()}
	slices.SortFunc(acting.Policies, toolkit.BySources) // a list of its own
	m := migration{in: in}
	for _, r := range acting.Policies {
		m.add(r)
	}
	groups, whole := policy.Closure(m.all(func(o *old) []map[string]string { return o.to }), maxGroups)
	groups = needed(groups, func(g map[string]string) []*old { return m.about(g) })
	units := in.Group(groups, func(g map[string]string) string {
		list := m.about(g)
		if len(list) > 1 {
			return "faults-on-" + policy.Slug(g)
		}
		same := 0
		for _, o := range groups {
			if slices.Equal(m.about(o), list) {
				same++
			}
		}
		if same > 1 {
			return list[0].policy.Name + "-" + policy.Slug(g)
		}
		return list[0].policy.Name
	}, faultinjection.Kind)
	for _, u := range units {
		list := m.about(u.Match)
		p := policy.Migrated{Kind: faultinjection.Kind, Name: u.Name,
			Spec: &resource.Policy{TargetRef: toolkit.OfSidecars(u.Target)}}
		policy.AddNote(&p.Notes, acting.Note)
		if !whole {
			policy.AddNote(&p.Notes, fmt.Sprintf("there are more than %d groups of inbounds: some that several policies are "+
				"about have no policy of their own", maxGroups))
		}
		for _, o := range list {
			p.From = append(p.From, o.policy.Key)
			for _, n := range m.notes[o] {
				policy.AddNote(&p.Notes, n)
			}
		}
		slices.SortFunc(p.From, resource.Key.Compare)
		p.Spec.From = m.clients(list, &p.Notes)
		out.Policies = append(out.Policies, p)
	}
	return out
}

// migration knows the FaultInjections in the order in which they act.
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
	if b := conf.ResponseBandwidth; b != nil { // mega and giga may be written small there
		with := *b
		with.Limit = strings.NewReplacer("mbps", "Mbps", "gbps", "Gbps").Replace(b.Limit)
		o.fault.ResponseBandwidth = &with
	}
	if m.notes == nil {
		m.notes = map[*old][]string{}
	}
	for _, s := range []struct {
		selectors []resource.LegacySelector
		into      *[]map[string]string
	}{{spec.Sources, &o.from}, {spec.Destinations, &o.to}} {
		for i := range s.selectors {
			list, note := m.in.Expand(s.selectors[i].Match)
			*s.into = append(*s.into, list...)
			n := m.notes[o]
			policy.AddNote(&n, note)
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

// about returns the policies that are about all inbounds of a group.
func (m *migration) about(group map[string]string) []*old {
	return with(m.old, group, func(o *old) []map[string]string { return o.to })
}

// with returns the policies of a list of which some selector covers a group.
func with(list []*old, group map[string]string, of func(*old) []map[string]string) []*old {
	var out []*old
	for _, o := range list {
		if slices.ContainsFunc(of(o), func(s map[string]string) bool { return policy.Covers(s, group) }) {
			out = append(out, o)
		}
	}
	return out
}

// needed drops groups of which the groups around them say the same.
func needed(groups []map[string]string, about func(map[string]string) []*old) []map[string]string {
	var out []map[string]string
	for _, g := range groups {
		around, same := 0, true
		for _, o := range groups {
			if len(o) < len(g) && policy.Covers(o, g) {
				around++
				same = same && slices.Equal(about(o), about(g))
			}
		}
		if around == 0 || !same {
			out = append(out, g)
		}
	}
	return out
}

// clients makes an item for each group of clients, the wider ones first.
func (m *migration) clients(list []*old, notes *[]string) []resource.PolicyItem {
	from := func(o *old) []map[string]string { return o.from }
	var all []map[string]string
	for _, o := range list {
		all = append(all, o.from...)
	}
	groups, whole := policy.Closure(all, maxGroups)
	if !whole {
		policy.AddNote(notes, fmt.Sprintf("there are more than %d groups of clients: some that several policies are about "+
			"get the faults of one alone", maxGroups))
	}
	groups = needed(groups, func(g map[string]string) []*old { return with(list, g, from) })
	var out []resource.PolicyItem
	policy.AddNote(notes, m.several(groups))
	for _, g := range groups {
		if len(g) == 0 {
			policy.AddNote(notes, "what is said to all clients is said to those outside the mesh too, which send no tags; "+
				"FaultInjection was about clients with tags alone")
		}
		faults := []faultinjection.Fault{}
		for _, o := range with(list, g, from) {
			faults = append(faults, o.fault)
		}
		if len(faults) > faultinjection.MaxFaults {
			policy.AddNote(notes,
				fmt.Sprintf("some clients have %d faults, and MeshFaultInjection takes %d: the others are left out",
					len(faults), faultinjection.MaxFaults))
			faults = faults[:faultinjection.MaxFaults]
		}
		out = append(out, resource.PolicyItem{TargetRef: policy.ClientTarget(g), Conf: &faultinjection.Conf{HTTP: &faults}})
	}
	return out
}

// several says which dataplanes are in several groups by having several values of a tag; "" for
// none.
func (m *migration) several(groups []map[string]string) string {
	for _, d := range m.in.Index.View.Dataplanes() {
		dp, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		tags := m.in.Index.View.ProxyTags(dp)
		for _, k := range slices.Sorted(maps.Keys(tags)) {
			told := map[string]bool{}
			for _, g := range groups {
				if v, ok := g[k]; ok && slices.Contains(tags[k], v) {
					told[v] = true
				}
			}
			if len(told) > 1 {
				return fmt.Sprintf("a client that has several values of %s, such as the dataplane %s, "+
					"gets the faults of each group that it is in, some of them twice", k, d.Name)
			}
		}
	}
	return ""
}

// changes explains what MeshFaultInjection writes otherwise than FaultInjection.
func changes() []policy.Change {
	const (
		filter = "Listener/*/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/httpFilters/" +
			"envoy.filters.http.fault*"
		all = "faults for all clients look for no tags any more: they hit clients outside the mesh too"
	)
	return []policy.Change{
		{Path: filter + "/typedConfig/headers", Before: policy.Any, Why: all},
		{Path: filter, Before: policy.Any, After: policy.Any, Why: "each group of clients has filters of its own, " +
			"which do not overlap, with the faults of all policies about it"},
		{Path: filter + "/**", Before: policy.Any, After: policy.Any, Why: "each group of clients has filters of its own, " +
			"which do not overlap, with the faults of all policies about it"},
	}
}
