package change

import (
	"cmp"
	"slices"

	"github.com/nearside-mesh/nearside/agent/answer/attribute"
	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// attribute finds the resources of the change that cause each effect: those without which it would
// not occur. If several resources are each sufficient, all of them are causes. The same applies if
// they are sufficient only in combination.
func (d *differ) attribute(x *proxyDiffer, p *api.ProxyDiff) error {
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
	for _, diff := range [...]*api.PartDiff{&p.Config, &p.Rules} {
		for i := range diff.Items {
			it := &diff.Items[i]
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

// find searches for the causes of effects among candidates. The same effect on another proxy with
// the same candidates has the same causes: most proxies of a node differ only in names and
// addresses.
func (d *differ) find(x *proxyDiffer, p *api.ProxyDiff, list []*candidate, all []consequence) error {
	key := x.keyFunc(list)
	var open []consequence
	for _, e := range all {
		if by, ok := d.known[key(e.text)]; ok {
			*e.by = append(*e.by, by...)
		} else {
			open = append(open, e)
		}
	}
	if len(open) == 0 {
		return nil
	}
	if d.attempted && d.work+d.derived/4 >= d.MaxTried { // derived counts services; four cost as much as one resource
		p.Unattributed = true
		return nil
	}
	d.attempted = true
	if err := d.attempt(x, open, list, false); err != nil {
		return err
	}
	rest := uncredited(open)
	if len(rest) > 0 {
		if err := d.attempt(x, rest, list, true); err != nil {
			return err
		}
	}
	rest = uncredited(rest)
	for _, c := range list {
		credit(rest, c.ref, nil, false)
	}
	for _, e := range open {
		if len(d.known) < maxKnown {
			d.known[key(e.text)] = slices.Clone(*e.by)
		}
	}
	return nil
}

// maxKnown is the maximum number of effects with cached causes.
const maxKnown = 100_000

// keyFunc returns a function that maps the text of an effect to a key, which is equal on proxies
// with the same effect. It removes the names that belong to a single proxy.
func (x *proxyDiffer) keyFunc(list []*candidate) func(text string) string {
	candidates := x.ProxyID.Mesh + "\x00"
	for _, c := range list {
		candidates += c.key.String() + "\x00"
	}
	mask := maskOf(x.own)
	return func(text string) string { return candidates + mask.Replace(text) }
}

// consequence is a change of a proxy whose causes are searched for.
type consequence struct {
	item itemID
	text string // equal for a part of the change with the same effect
	by   *[]api.Ref
}

// itemID identifies a resource of a config, or a rule.
type itemID struct{ typ, name string }

// effectText describes the creation, change, or deletion of an item, or the change of its field f.
func effectText(id itemID, action string, f *jsonpatch.FieldChange) string {
	s := id.typ + "\x00" + id.name + "\x00" + action
	if f != nil {
		s += "\x00" + f.Path + "\x00" + string(f.Before) + "\x00" + string(f.After)
	}
	return s
}

// effectsIn returns the effects on a proxy.
func effectsIn(p *api.ProxyDiff) []consequence {
	var out []consequence
	for _, diff := range [...]*api.PartDiff{&p.Config, &p.Rules} {
		for i := range diff.Items {
			it := &diff.Items[i]
			id := itemID{it.Type, it.Name}
			if it.Action != api.ActionChanged || len(it.Changes) == 0 {
				out = append(out, consequence{id, effectText(id, it.Action, nil), &it.By})
			}
			for j := range it.Changes {
				f := &it.Changes[j]
				out = append(out, consequence{id, effectText(id, it.Action, &f.FieldChange), &f.By})
			}
		}
	}
	return out
}

// outcome is the set of effect texts of a part of the change.
type outcome map[string]bool

// credit adds a cause to the effects that the outcome has, or lacks if has is false. With a nil
// outcome, it adds the cause to all effects.
func credit(list []consequence, ref api.Ref, seen outcome, has bool) {
	for _, e := range list {
		if seen == nil || seen[e.text] == has {
			*e.by = append(*e.by, ref)
		}
	}
}

// uncredited returns the effects without a cause.
func uncredited(list []consequence) []consequence {
	return slices.DeleteFunc(slices.Clone(list), func(e consequence) bool { return len(*e.by) > 0 })
}

func distinct(list []api.Ref) []api.Ref {
	slices.SortFunc(list, func(a, b api.Ref) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(list)
}

// attempt credits the candidates without which an effect does not occur. If single is set, it
// credits the candidates that suffice for an effect.
func (d *differ) attempt(x *proxyDiffer, effects []consequence, list []*candidate, single bool) (err error) {
	wanted := make(map[itemID]bool, len(effects))
	for _, e := range effects {
		wanted[e.item] = true
	}
	s := attribute.Search{ID: x.ProxyID, Memo: d.crew[0].memo, Prev: x.to, Spent: func() bool { return false }}
	if single {
		s.Prev = x.from
	}
	tried := make([]attribute.Candidate, len(list))
	for i, c := range list {
		tried[i] = attribute.Candidate{Key: c.key, Mesh: func() *generate.Mesh {
			if single {
				return d.aloneOne(x.mesh, c)
			}
			return d.withoutOne(x.mesh, c)
		}}
	}
	s.Try(tried, func(c *attribute.Candidate, m *generate.Mesh, p *generate.Proxy) bool {
		d.work++
		if p != nil && (s.Prev == nil || p.Sealed != s.Prev.Sealed) {
			for _, list := range p.Sealed.Resources {
				d.work += len(list)
			}
		}
		var seen outcome
		if seen, err = d.outcome(x, wanted, m, p); err == nil {
			credit(effects, api.RefOf(c.Key), seen, single)
		}
		return err == nil
	})
	return err
}

// outcome returns the effects on some items of a proxy, given its config in a mesh.
func (d *differ) outcome(x *proxyDiffer, wanted map[itemID]bool, m *generate.Mesh, p *generate.Proxy) (outcome, error) {
	changes := slices.DeleteFunc(generate.Difference(x.from, p), func(c generate.Change) bool {
		return !wanted[itemID{c.TypeURL, c.Name}]
	})
	config := d.crew[0].config
	config.own = x.own
	items, err := config.items(changes)
	if err != nil {
		return nil, err
	}
	if x.fromRules != nil {
		to, err := d.crew[0].rulesOf(m, x.Name)
		if err != nil {
			return nil, err
		}
		rules, err := d.crew[0].rulesDiff(x.fromRules, to)
		if err != nil {
			return nil, err
		}
		items = append(items, rules.items...)
	}
	out := outcome{}
	for _, it := range items {
		id := itemID{it.typ, it.name}
		out[effectText(id, it.action, nil)] = true
		for i := range it.fields {
			out[effectText(id, it.action, &it.fields[i])] = true
		}
	}
	return out, nil
}
