package successor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Unit is a draft of one targetRef policy. It holds the selectors of a legacy policy that have one
// strength.
type Unit struct {
	Policy *resource.Resource // the legacy policy; nil if the unit replaces several
	Match  map[string]string  // the tags of the selected proxies or inbounds
	All    bool               // for outbound policies: all destinations
	To     []string           // if All is false: these values of kuma.io/service
	Name   string             // of the new policy
	Target resource.TargetRef
	Notes  []string
	// Weaker are the units that can apply to the same connection and that this one overrides.
	Weaker []*Unit

	rank precedence.Tags
	base string // of the name
}

// Plan holds the units of one legacy kind in order of increasing precedence.
type Plan struct {
	Units   []*Unit
	Without []policy.WithoutSuccessor
}

// PlanOptions define how the legacy policies of a kind compete and which policies supersede them.
type PlanOptions struct {
	// Kinds are the successor kinds. A unit has the same name in each of them.
	Kinds []string
	// Inbound is true for inbound policies, of which one applies to each inbound, and false for
	// outbound policies, of which one applies to each destination.
	Inbound bool
	// SupersededBy returns the policy that supersedes the legacy kind on a dataplane, or nil.
	SupersededBy func(dataplane *resource.Resource) *resource.Resource
}

// NewPlan converts the legacy policies to units. For each connection, legacy kinds apply only the
// policy that matches with the most tags and merge nothing. The units preserve this order through
// the kinds of their targetRefs if possible, and otherwise through their names under targetRefs of
// one kind.
func NewPlan(in *policy.MigrateInput, o PlanOptions) *Plan {
	acting := NewActing(in, o)
	p := &Plan{Without: acting.Without}
	for _, r := range acting.Policies {
		spec := r.Spec.(*resource.LegacyPolicy)
		var units []*Unit
		if o.Inbound {
			units = inboundUnits(in, r, spec)
		} else {
			units = outboundUnits(in, r, spec)
		}
		if len(units) == 0 {
			p.Without = append(p.Without,
				policy.WithoutSuccessor{Policy: r.Key,
					Why: "it has no effect because no dataplane has the required tags; delete it"})
			continue
		}
		for _, u := range units {
			AddNote(&u.Notes, acting.Note)
		}
		p.Units = append(p.Units, units...)
	}
	meet := func(a, b *Unit) bool { return a.All || b.All || slices.ContainsFunc(a.To, b.leads) }
	if o.Inbound {
		meet = func(a, b *Unit) bool { return Meet(a.Match, b.Match) }
	}
	p.Units = needed(sorted(p.Units), meet)
	nameUnits(p.Units)
	order(in, p.Units, meet, o.Kinds)
	return p
}

// Acting holds the legacy policies that have an effect.
type Acting struct {
	Policies []*resource.Resource      // their specs are *resource.LegacyPolicy
	Without  []policy.WithoutSuccessor // the other policies
	// Note lists active policies of the new kinds; "" if there are none.
	Note string
}

// NewActing separates the policies that have an effect from those that are superseded on every
// dataplane that they select.
func NewActing(in *policy.MigrateInput, o PlanOptions) Acting {
	ruled := superseding(in, o.SupersededBy)
	out := Acting{Note: actingNote(ruled, o.Kinds)}
	for _, r := range in.Policies {
		if _, ok := r.Spec.(*resource.LegacyPolicy); !ok {
			continue
		}
		if by := supersededBy(in, r, o.Inbound, ruled); by != nil {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key,
				Why: fmt.Sprintf("it has no effect because %s supersedes it on all dataplanes that it selects; delete it", by.Key)})
			continue
		}
		out.Policies = append(out.Policies, r)
	}
	return out
}

func (u *Unit) leads(service string) bool { return slices.Contains(u.To, service) }

// Dominated reports whether a stronger unit applies to all connections of u's proxies to a service.
func (p *Plan) Dominated(u *Unit, service string) bool {
	return slices.ContainsFunc(p.Units, func(s *Unit) bool {
		return s != u && (s.All || s.leads(service)) && mesh.Contains(u.Match, s.Match) && under(u, s)
	})
}

// Group returns units that each replace several legacy policies, one for each tag set. A unit whose
// tags include another's takes precedence over it. base returns the base names.
func Group(in *policy.MigrateInput, matches []map[string]string, base func(match map[string]string) string,
	kinds ...string) []*Unit {
	out := make([]*Unit, len(matches))
	for i, m := range matches {
		out[i] = &Unit{Match: m, rank: precedence.Tags{Exact: len(m)}, base: policy.ClipName(base(m), policy.MaxName)}
	}
	out = sorted(out)
	order(in, out, func(weak, strong *Unit) bool { return mesh.Contains(strong.Match, weak.Match) }, kinds)
	return out
}

// superseding returns, by dataplane, the policy that supersedes the legacy kind.
func superseding(in *policy.MigrateInput,
	by func(*resource.Resource) *resource.Resource) map[*resource.Resource]*resource.Resource {
	out := map[*resource.Resource]*resource.Resource{}
	if by == nil {
		return out
	}
	for _, d := range in.Index.View.Dataplanes() {
		if p := by(d); p != nil {
			out[d] = p
		}
	}
	return out
}

// supersededBy returns a policy that supersedes a legacy policy. It returns nil if the policy has
// an effect on some dataplane, or selects none yet.
func supersededBy(in *policy.MigrateInput, p *resource.Resource, inbound bool,
	ruled map[*resource.Resource]*resource.Resource) *resource.Resource {
	var last *resource.Resource
	if len(ruled) == 0 {
		return nil
	}
	for _, d := range in.Index.View.Dataplanes() {
		if !in.Index.SelectLegacy(p, d, inbound).Selected {
			continue
		}
		if last = ruled[d]; last == nil {
			return nil
		}
	}
	return last
}

// actingNote returns a note about active policies of the new kinds.
func actingNote(ruled map[*resource.Resource]*resource.Resource, kinds []string) string {
	var names []string
	for _, by := range ruled {
		names = append(names, by.Key.String())
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("policies of kind %s are already active on some dataplanes (%s) and supersede the legacy policies "+
		"there; this policy is merged with them", strings.Join(kinds, " and "), FirstNames(slices.Compact(names)))
}

// FirstNames formats up to three names for a message.
func FirstNames(names []string) string {
	if len(names) > 3 {
		names = append(names[:3:3], "…")
	}
	return strings.Join(names, ", ")
}

// inboundUnits returns a unit for each selector of the destinations.
func inboundUnits(in *policy.MigrateInput, r *resource.Resource, spec *resource.LegacyPolicy) []*Unit {
	var out []*Unit
	for i := range spec.Destinations {
		list, note := Expand(in, spec.Destinations[i].Match)
		for _, m := range list {
			out = append(out, unit(r, m, note, precedence.TagsOf(spec.Destinations[i].Match)))
		}
	}
	return out
}

// outboundUnits returns a unit for each selector of the sources: one for all destinations and one
// for the named ones, because these differ in rank.
func outboundUnits(in *policy.MigrateInput, r *resource.Resource, spec *resource.LegacyPolicy) []*Unit {
	all := false
	var to, ignored []string
	for i := range spec.Destinations {
		switch m := spec.Destinations[i].Match; {
		case len(m) > 1:
			ignored = append(ignored, fmt.Sprintf("destinations[%d]", i))
		case m[resource.TagService] == "*":
			all = true
		case m[resource.TagService] != "":
			to = append(to, m[resource.TagService])
		}
	}
	slices.Sort(to)
	to = slices.Compact(to)
	var out []*Unit
	for i := range spec.Sources {
		list, note := Expand(in, spec.Sources[i].Match)
		from := precedence.TagsOf(spec.Sources[i].Match)
		for _, m := range list {
			if all {
				u := unit(r, m, note, from.Add(precedence.Tags{Any: 1}))
				u.All = true
				out = append(out, u)
			}
			if len(to) > 0 {
				u := unit(r, m, note, from.Add(precedence.Tags{Exact: 1}))
				u.To = to
				out = append(out, u)
			}
		}
	}
	if len(ignored) > 0 && len(out) > 0 {
		verb := "has"
		if len(ignored) > 1 {
			verb = "have"
		}
		out[0].Notes = append(out[0].Notes, fmt.Sprintf("%s of %s %s no effect and were dropped: "+
			"only kuma.io/service can select a destination", strings.Join(ignored, ", "), r.Key, verb))
	}
	return out
}

func unit(r *resource.Resource, m map[string]string, note string, k precedence.Tags) *Unit {
	u := &Unit{Policy: r, Match: m, rank: k}
	if note != "" {
		u.Notes = append(u.Notes, note)
	}
	return u
}

// sorted sorts units by increasing strength.
func sorted(units []*Unit) []*Unit {
	slices.SortStableFunc(units, func(a, b *Unit) int {
		return cmp.Or(a.rank.Compare(b.rank), strings.Compare(b.policyName(), a.policyName()))
	})
	return units
}

// needed drops units that a weaker unit of the same policy makes redundant because no other policy
// ranks between the two.
func needed(units []*Unit, meet func(a, b *Unit) bool) []*Unit {
	var out []*Unit
	for _, u := range units {
		i := len(out) - 1
		for i >= 0 && (out[i].Policy == u.Policy || !meet(out[i], u)) && !out[i].sameAs(u) {
			i--
		}
		if i < 0 || !out[i].sameAs(u) {
			out = append(out, u)
		}
	}
	return out
}

// sameAs reports whether a weaker unit has the same effect on all connections of u.
func (weak *Unit) sameAs(u *Unit) bool {
	return weak.Policy == u.Policy && weak.All == u.All && slices.Equal(weak.To, u.To) &&
		mesh.Contains(u.Match, weak.Match)
}

// order sets targetRefs and names that give the sorted units the same order as targetRef policies.
// It also records the weaker units of each.
func order(in *policy.MigrateInput, units []*Unit, meet func(a, b *Unit) bool, kinds []string) {
	for i, strong := range units {
		strong.Target = Target(in.Index, strong.Match)
		for _, weak := range units[:i] {
			if (weak.Policy == nil || weak.Policy != strong.Policy) && meet(weak, strong) {
				strong.Weaker = append(strong.Weaker, weak)
			}
		}
	}
	if !inOrder(units, func(weak, strong *Unit) bool { return precedence.Targets(&weak.Target, &strong.Target) <= 0 }) {
		for _, u := range units {
			u.Target = subsetTarget(u.Match)
		}
	}
	for _, prefix := range []func(int) string{func(int) string { return "" }, byRank(units), byPosition(units)} {
		names(in, units, prefix, kinds)
		if inOrder(units, under) {
			return
		}
	}
}

// inOrder reports whether holds is true for each unit and its weaker ones.
func inOrder(units []*Unit, holds func(weak, strong *Unit) bool) bool {
	for _, u := range units {
		if slices.ContainsFunc(u.Weaker, func(weak *Unit) bool { return !holds(weak, u) }) {
			return false
		}
	}
	return true
}

func (u *Unit) policyName() string {
	if u.Policy == nil {
		return u.base
	}
	return u.Policy.Name
}

// under reports whether strong takes precedence over weak as a targetRef policy. It is consistent
// with precedence.Policies.
func under(weak, strong *Unit) bool {
	return cmp.Or(precedence.Targets(&weak.Target, &strong.Target),
		strings.Compare(strong.Name, weak.Name)) < 0
}
