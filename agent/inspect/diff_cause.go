package inspect

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// maxCandidates bounds the resources of the change that are tried for one proxy.
const maxCandidates = 64

// candidate is a resource of the change that may cause something.
type candidate struct {
	ref     Ref
	key     resource.Key
	was, is *resource.Resource // as it acts before and after the change; nil: it does not

	without, alone attempt
}

// attempt is a mesh in which a part of the change was made.
type attempt struct {
	mesh *xds.Mesh
	done bool
}

// candidatesIn lists what of the change acts in a mesh, and reports whether the mesh has other resources afterwards: a
// shadow policy may come and go without acting.
func (d *differ) candidatesIn(mesh string) (out []*candidate, other bool) {
	for i := range d.out.Resources {
		r := &d.out.Resources[i]
		if r.Action == ActionUnchanged || r.Mesh != mesh && (r.Mesh != "" || r.Type == kindMesh && r.Name != mesh) {
			continue
		}
		other = other || r.Action != ActionActivated
		k := resource.Key{Kind: r.Type, Mesh: r.Mesh, Name: r.Name}
		c := &candidate{ref: Ref{Type: r.Type, Mesh: r.Mesh, Name: r.Name}, key: k}
		if c.was = d.c.Set.Get(k); c.was != nil && c.was.Shadow() {
			c.was = nil
		}
		if c.is = d.after.Get(k); c.is != nil && c.is.Shadow() && !d.c.Shadow {
			c.is = nil
		}
		if c.was != nil || c.is != nil {
			out = append(out, c)
		}
	}
	return out, other
}

// withoutOne is the mesh after the change, but for one resource.
func (d *differ) withoutOne(m *meshStates, c *candidate) *xds.Mesh {
	return d.try(&c.without, m.to, func() *resource.Set { return exchange(d.after.All(), c.key, c.was) })
}

// aloneOne is the mesh before the change, but for one resource.
func (d *differ) aloneOne(m *meshStates, c *candidate) *xds.Mesh {
	return d.try(&c.alone, m.from, func() *resource.Set {
		now := slices.DeleteFunc(d.c.Set.All(), func(r *resource.Resource) bool { return r.Shadow() })
		return exchange(now, c.key, c.is)
	})
}

// try derives a mesh once; nil when there is none.
func (d *differ) try(a *attempt, prev *xds.Mesh, set func() *resource.Set) *xds.Mesh {
	if a.done || prev == nil {
		return a.mesh
	}
	a.done = true
	d.work += len(prev.View.Services()) / 4 // what a view costs, compared with a config
	m, err := d.build(set(), prev.View.Name, prev)
	if err != nil || m == nil {
		return nil
	}
	if d.c.Shadow {
		m = m.Shadow()
	}
	a.mesh = m
	return m
}

// exchange puts another resource in the place of one; nil: none.
func exchange(list []*resource.Resource, k resource.Key, by *resource.Resource) *resource.Set {
	list = slices.DeleteFunc(list, func(r *resource.Resource) bool { return r.Key == k })
	if by != nil {
		list = append(list, by)
	}
	return resource.NewSet(list)
}

// attribute finds out which resources of the change cause what: those without which it would not come. What several
// cause alike, each by itself, is caused by each of them, and what only several can cause is caused by all.
func (d *differ) attribute(x *proxyStates, p *ProxyDiff) error {
	list, all := x.potential(), effectsIn(p)
	switch {
	case len(list) == 1:
		credit(all, list[0].ref, nil, false)
	case len(list) > maxCandidates:
		p.Unattributed = len(all) > 0
	case len(list) > 1:
		if err := d.find(x, p, list, all); err != nil {
			return err
		}
	}
	for _, part := range [...]*PartDiff{&p.Config, &p.Rules} {
		for i := range part.Items {
			it := &part.Items[i]
			for j := range it.Changes {
				it.By = append(it.By, it.Changes[j].By...)
			}
			it.By = distinct(it.By)
			p.Policies = append(p.Policies, it.By...)
		}
	}
	p.Policies = distinct(p.Policies)
	return nil
}

// find looks for the causes of effects among several candidates. An effect that another proxy has shown in the same way,
// with the same candidates, has the same causes: most proxies of a node differ in their names and addresses alone.
func (d *differ) find(x *proxyStates, p *ProxyDiff, list []*candidate, all []effect) error {
	key := x.alike(list)
	var open []effect
	for _, e := range all {
		if by, ok := d.known[key(&e)]; ok {
			*e.by = append(*e.by, by...)
		} else {
			open = append(open, e)
		}
	}
	if len(open) == 0 {
		return nil
	}
	if d.attempted && d.work >= d.c.MaxTried {
		p.Unattributed = true
		return nil
	}
	d.attempted = true
	for _, c := range list {
		if err := d.attempt(x, open, d.withoutOne(x.mesh, c), x.to, func(seen outcome) { credit(open, c.ref, seen, false) }); err != nil {
			return err
		}
	}
	rest := uncredited(open)
	for i := 0; i < len(list) && len(rest) > 0; i++ {
		if err := d.attempt(x, rest, d.aloneOne(x.mesh, list[i]), x.from, func(seen outcome) { credit(rest, list[i].ref, seen, true) }); err != nil {
			return err
		}
	}
	rest = uncredited(rest)
	for _, c := range list {
		credit(rest, c.ref, nil, false)
	}
	for _, e := range open {
		if len(d.known) < maxKnown {
			d.known[key(&e)] = slices.Clone(*e.by)
		}
	}
	return nil
}

// maxKnown bounds the effects whose causes are remembered.
const maxKnown = 100_000

// alike returns a function that gives effects the same key on proxies of which the same is to be said: what belongs to
// one proxy alone is left out.
func (x *proxyStates) alike(list []*candidate) func(*effect) string {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(c.key.String() + "\x00")
	}
	candidates := b.String()
	var pairs []string
	for i, s := range x.own {
		pairs = append(pairs, s, "\x00"+strconv.Itoa(i))
	}
	mask := strings.NewReplacer(pairs...)
	return func(e *effect) string {
		k := candidates + e.item.typ + "\x00" + mask.Replace(e.item.name) + "\x00" + e.action
		if e.field != nil {
			k += "\x00" + mask.Replace(e.field.Path) + "\x00" + string(e.field.Before) + "\x00" + string(e.field.After)
		}
		return k
	}
}

// effect is something that changes and whose causes are looked for.
type effect struct {
	item   itemID
	action string
	field  *FieldDiff // nil: that the item comes or goes
	by     *[]Ref
}

// itemID names a resource of a config, or a rule.
type itemID struct{ typ, name string }

// effectsIn lists what changes on a proxy.
func effectsIn(p *ProxyDiff) []effect {
	var out []effect
	for _, part := range [...]*PartDiff{&p.Config, &p.Rules} {
		for i := range part.Items {
			it := &part.Items[i]
			e := effect{item: itemID{it.Type, it.Name}, action: it.Action, by: &it.By}
			if it.Action != ActionChanged {
				out = append(out, e)
			}
			for j := range it.Changes {
				e.field, e.by = &it.Changes[j], &it.Changes[j].By
				out = append(out, e)
			}
		}
	}
	return out
}

// credit names a cause of those effects that an outcome has, or has not. Without an outcome it is a cause of all.
func credit(list []effect, ref Ref, seen outcome, has bool) {
	for _, e := range list {
		if seen == nil || seen.has(&e) == has {
			*e.by = append(*e.by, ref)
		}
	}
}

// uncredited are the effects without a cause.
func uncredited(list []effect) []effect {
	return slices.DeleteFunc(slices.Clone(list), func(e effect) bool { return len(*e.by) > 0 })
}

func distinct(list []Ref) []Ref {
	slices.SortFunc(list, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(list)
}

// potential lists the candidates that a proxy can notice: of policies, those that select it, and those that these refer to.
func (x *proxyStates) potential() []*candidate {
	named := map[string]bool{} // kinds that targetRefs name
	selected := map[resource.Key]bool{}
	kinds := map[string]bool{} // of policies
	for _, m := range [...]*xds.Mesh{x.mesh.from, x.mesh.to} {
		if m == nil || m.Policies == nil {
			continue
		}
		for i := range m.Policies.Rooms {
			kindsOf(&m.Policies.Rooms[i], kinds)
		}
		dp := m.View.Dataplane(x.id.Name)
		if dp == nil {
			continue
		}
		for _, r := range m.Policies.Match(dp).Policies() {
			selected[r.Key] = true
			spec, ok := r.Spec.(*resource.Policy)
			if !ok {
				continue
			}
			if spec.TargetRef != nil {
				named[spec.TargetRef.Kind] = true
			}
			for i := range spec.To {
				named[spec.To[i].TargetRef.Kind] = true
			}
		}
	}
	var out []*candidate
	for _, c := range x.mesh.candidates {
		if !kinds[c.key.Kind] || selected[c.key] || named[c.key.Kind] {
			out = append(out, c)
		}
	}
	return out
}

// kindsOf adds the kinds of policies of a room.
func kindsOf(room *policy.Room, to map[string]bool) {
	for _, d := range room.Kinds {
		to[d.Kind] = true
	}
	for _, l := range room.Legacy {
		to[l.Kind] = true
	}
}

// outcome is what a part of the change does to a proxy.
type outcome map[itemID]*changedItem

// has reports whether an effect of the whole change is one of the part too.
func (o outcome) has(e *effect) bool {
	it := o[e.item]
	if it == nil || it.action != e.action {
		return false
	}
	return e.field == nil || slices.ContainsFunc(it.fields, func(f FieldDiff) bool {
		return f.Path == e.field.Path && bytes.Equal(f.Before, e.field.Before) && bytes.Equal(f.After, e.field.After)
	})
}

// attempt finds out what becomes of some effects on a proxy in a mesh where only a part of the change was made; prev is
// the config that is most like it. Where nothing can be made, nothing is known.
func (d *differ) attempt(x *proxyStates, of []effect, m *xds.Mesh, prev *xds.Proxy, then func(outcome)) error {
	if m == nil {
		return nil
	}
	p, err := d.generate(m, x.id, prev)
	if err != nil {
		return nil
	}
	d.work++
	if p != nil && (prev == nil || p.Sealed != prev.Sealed) {
		for _, list := range p.Sealed.Resources {
			d.work += len(list)
		}
	}
	wanted := make(map[itemID]bool, len(of))
	for _, e := range of {
		wanted[e.item] = true
	}
	changes := slices.DeleteFunc(xds.Difference(x.from, p), func(c xds.Change) bool { return !wanted[itemID{c.TypeURL, c.Name}] })
	items, err := d.config.items(changes)
	if err != nil {
		return err
	}
	if x.fromRules != nil {
		rules, err := rulesOf(m, x.id.Name)
		if err != nil {
			return err
		}
		changed, err := ruleItems(x.fromRules, rules)
		if err != nil {
			return err
		}
		items = append(items, changed...)
	}
	out := make(outcome, len(items))
	for i := range items {
		out[itemID{items[i].typ, items[i].name}] = &items[i]
	}
	then(out)
	return nil
}
