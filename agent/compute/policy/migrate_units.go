package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Unit is one targetRef policy in the making: what a legacy policy says by one of its selectors,
// all of one strength.
type Unit struct {
	Policy *resource.Resource // the legacy policy; nil where it stands for several
	Match  map[string]string  // the tags of the proxies or inbounds that it is about
	All    bool               // of connections that leave: to all destinations
	To     []string           // else to these values of kuma.io/service
	Name   string             // of the new policy
	Target resource.TargetRef
	Notes  []string
	// Weaker are the units that can be about the same connection and over which this one takes
	// precedence.
	Weaker []*Unit

	rank rank
	base string // of the name
}

// Plan is the units of one legacy kind, each stronger than the ones before.
type Plan struct {
	Units   []*Unit
	Without []WithoutSuccessor
}

// PlanOptions say how the legacy policies of a kind compete, and with what.
type PlanOptions struct {
	// Kinds are those that take over. A unit has the same name in each of them.
	Kinds []string
	// Inbound is true for inbound policies, of which one applies to each inbound, and false for
	// outbound policies, of which one applies to the connections to each destination.
	Inbound bool
	// SupersededBy returns the policy that supersedes the legacy kind on a dataplane, nil for none.
	SupersededBy func(dataplane *resource.Resource) *resource.Resource
}

// Plan makes units of the legacy policies. Of those that concern one connection legacy kinds take
// the one that names most tags, and merges nothing. The units keep that order: by the kinds of
// their targetRef where these do, and else by their names under targetRefs of one kind.
func (in *MigrateInput) Plan(o PlanOptions) *Plan {
	acting := in.Acting(o)
	p := &Plan{Without: acting.Without}
	for _, r := range acting.Policies {
		spec := r.Spec.(*resource.LegacyPolicy)
		var units []*Unit
		if o.Inbound {
			units = in.arriving(r, spec)
		} else {
			units = in.leaving(r, spec)
		}
		if len(units) == 0 {
			p.Without = append(p.Without,
				WithoutSuccessor{r.Key, "it has no effect: nothing has the tags that it wants; delete it"})
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
	in.order(p.Units, meet, o.Kinds)
	return p
}

// Acting is the legacy policies that have an effect.
type Acting struct {
	Policies []*resource.Resource // their specs are *resource.LegacyPolicy
	Without  []WithoutSuccessor   // the others
	// Note says where policies of the new kinds act already; "" where they do not.
	Note string
}

// Acting separates the policies that have an effect from those that are superseded wherever they
// select something.
func (in *MigrateInput) Acting(o PlanOptions) Acting {
	ruled := in.superseding(o.SupersededBy)
	out := Acting{Note: actingNote(ruled, o.Kinds)}
	for _, r := range in.Policies {
		if _, ok := r.Spec.(*resource.LegacyPolicy); !ok {
			continue
		}
		if by := in.supersededBy(r, o.Inbound, ruled); by != nil {
			out.Without = append(out.Without, WithoutSuccessor{r.Key,
				fmt.Sprintf("it has no effect: %s rules the dataplanes that it selects; delete it", by.Key)})
			continue
		}
		out.Policies = append(out.Policies, r)
	}
	return out
}

func (u *Unit) leads(service string) bool { return slices.Contains(u.To, service) }

// Dominated reports whether a unit with precedence over u is about all connections of the proxies
// of u to a service.
func (p *Plan) Dominated(u *Unit, service string) bool {
	return slices.ContainsFunc(p.Units, func(s *Unit) bool {
		return s != u && (s.All || s.leads(service)) && Covers(s.Match, u.Match) && under(u, s)
	})
}

// Group makes units that stand for several legacy policies each: one for each set of tags. What has
// all the tags of another takes precedence over it. base names them.
func (in *MigrateInput) Group(matches []map[string]string, base func(match map[string]string) string,
	kinds ...string) []*Unit {
	out := make([]*Unit, len(matches))
	for i, m := range matches {
		out[i] = &Unit{Match: m, rank: rank{exact: len(m)}, base: clip(base(m), maxBase)}
	}
	out = sorted(out)
	in.order(out, func(weak, strong *Unit) bool { return Covers(weak.Match, strong.Match) }, kinds)
	return out
}

// superseding returns by dataplane the policy that supersedes the legacy kind on it.
func (in *MigrateInput) superseding(
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

// supersededBy returns one of the policies that supersede a legacy policy everywhere, nil when it
// acts somewhere or would as soon as there is a dataplane for it.
func (in *MigrateInput) supersededBy(p *resource.Resource, inbound bool,
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

// actingNote says that policies of the new kinds act already on some of the dataplanes.
func actingNote(ruled map[*resource.Resource]*resource.Resource, kinds []string) string {
	var names []string
	for _, by := range ruled {
		names = append(names, by.Key.String())
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("policies of kind %s act already on some dataplanes (%s), where the legacy ones have no effect "+
		"any more: there this policy is merged with them", strings.Join(kinds, " and "), firstNames(slices.Compact(names)))
}

// firstNames lists names for a message, the first three of many.
func firstNames(names []string) string {
	if len(names) > 3 {
		names = append(names[:3:3], "…")
	}
	return strings.Join(names, ", ")
}

// arriving makes a unit for each selector of the destinations.
func (in *MigrateInput) arriving(r *resource.Resource, spec *resource.LegacyPolicy) []*Unit {
	var out []*Unit
	for i := range spec.Destinations {
		list, note := in.Expand(spec.Destinations[i].Match)
		for _, m := range list {
			out = append(out, unit(r, m, note, rankIn(spec.Destinations[i].Match)))
		}
	}
	return out
}

// leaving makes a unit for each selector of the sources: one for all destinations and one for those
// that are named, as these are of different strength.
func (in *MigrateInput) leaving(r *resource.Resource, spec *resource.LegacyPolicy) []*Unit {
	all := false
	var to, odd []string
	for i := range spec.Destinations {
		switch m := spec.Destinations[i].Match; {
		case len(m) > 1:
			odd = append(odd, fmt.Sprintf("destinations[%d]", i))
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
		list, note := in.Expand(spec.Sources[i].Match)
		from := rankIn(spec.Sources[i].Match)
		for _, m := range list {
			if all {
				u := unit(r, m, note, from.add(rank{any: 1}))
				u.All = true
				out = append(out, u)
			}
			if len(to) > 0 {
				u := unit(r, m, note, from.add(rank{exact: 1}))
				u.To = to
				out = append(out, u)
			}
		}
	}
	if len(odd) > 0 && len(out) > 0 {
		out[0].Notes = append(out[0].Notes, fmt.Sprintf("%s of %s names tags beside kuma.io/service, "+
			"by which no destination is known: it has no effect and is left out", strings.Join(odd, ", "), r.Key))
	}
	return out
}

func unit(r *resource.Resource, m map[string]string, note string, k rank) *Unit {
	u := &Unit{Policy: r, Match: m, rank: k}
	if note != "" {
		u.Notes = append(u.Notes, note)
	}
	return u
}

// rankIn counts the tags of a selector.
func rankIn(m map[string]string) rank {
	var r rank
	for _, v := range m {
		if v == "*" {
			r.any++
		} else {
			r.exact++
		}
	}
	return r
}

// sorted orders units by their strength, the weakest first.
func sorted(units []*Unit) []*Unit {
	slices.SortStableFunc(units, func(a, b *Unit) int {
		return cmp.Or(a.rank.compare(b.rank), strings.Compare(b.policyName(), a.policyName()))
	})
	return units
}

// needed leaves out units for whose connections a weaker one of the same policy does as well: no
// other policy stands between the two.
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

// sameAs reports whether a weaker unit says the same of all connections of u.
func (weak *Unit) sameAs(u *Unit) bool {
	return weak.Policy == u.Policy && weak.All == u.All && slices.Equal(weak.To, u.To) && Covers(weak.Match, u.Match)
}

// order gives units, which are sorted, targetRefs and names under which targetRef policies have the
// same order, and notes what is weaker than each.
func (in *MigrateInput) order(units []*Unit, meet func(a, b *Unit) bool, kinds []string) {
	for i, strong := range units {
		strong.Target = in.Index.Target(strong.Match)
		for _, weak := range units[:i] {
			if (weak.Policy == nil || weak.Policy != strong.Policy) && meet(weak, strong) {
				strong.Weaker = append(strong.Weaker, weak)
			}
		}
	}
	if !inOrder(units, func(weak, strong *Unit) bool { return refStrength(&weak.Target) <= refStrength(&strong.Target) }) {
		for _, u := range units {
			u.Target = subsetTarget(u.Match)
		}
	}
	for _, prefix := range []func(int) string{noPrefix, byRank(units), byPlace(units)} {
		in.names(units, prefix, kinds)
		if inOrder(units, under) {
			return
		}
	}
}

// inOrder reports whether something holds of each unit and the weaker ones.
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

// under reports whether one unit takes precedence over another as a targetRef policy, as
// compareStrength does.
func under(weak, strong *Unit) bool {
	return cmp.Or(cmp.Compare(refStrength(&weak.Target), refStrength(&strong.Target)),
		strings.Compare(strong.Name, weak.Name)) < 0
}
