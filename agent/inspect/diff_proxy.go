package inspect

import (
	"cmp"
	"errors"
	"slices"

	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// proxy compares one proxy.
func (d *differ) proxy(id ProxyID) error {
	m, err := d.mesh(id.Mesh)
	if err != nil {
		return err
	}
	if m.from == m.to {
		if m.from != nil && m.from.View.Dataplane(id.Name) != nil {
			d.out.Compared++
		}
		return nil
	}
	p := ProxyDiff{Mesh: id.Mesh, Name: id.Name, Action: ActionUnchanged, Policies: []Ref{}}
	from, failedBefore := d.generate(m.from, id, nil)
	to, failed := d.generate(m.to, id, from)
	if from == nil && to == nil && failed == nil && failedBefore == nil {
		return nil // it exists in neither state
	}
	d.out.Compared++
	switch {
	case failed != nil && failedBefore != nil && failed.Error() == failedBefore.Error():
		return nil // nothing becomes worse
	case failed != nil:
		p.Action, p.Error = ActionFailed, failed.Error()
		p.Config, p.Rules = newPart(nil), newPart(nil)
		d.out.Changed = true
		d.out.Proxies = append(d.out.Proxies, p)
		return nil
	}
	if from != nil {
		for _, w := range from.Warnings {
			d.was[w] = true
		}
	}
	if to != nil {
		for _, w := range to.Warnings {
			d.are[w] = true
		}
	}
	x := &proxyStates{id: id, mesh: m, from: from, to: to}
	x.own = x.names()
	d.config.own = x.own
	if err := x.compare(d); err != nil {
		return err
	}
	if len(x.config) == 0 && len(x.rulesPatch) == 0 {
		return nil
	}
	if len(x.config) > 0 {
		p.Action = actionOf(from != nil, to != nil)
		d.out.Changed = true
	}
	if err := x.tell(d, &p); err != nil {
		return err
	}
	d.out.Proxies = append(d.out.Proxies, p)
	return nil
}

// generate makes the config of a proxy; nil when the mesh has no such dataplane.
func (d *differ) generate(m *generate.Mesh, id ProxyID, prev *generate.Proxy) (*generate.Proxy, error) {
	if m == nil {
		return nil, nil
	}
	p, err := generate.Generate(generate.Input{Mesh: m, Name: id.Name, Flavor: id.Flavor}, prev, d.memo)
	var missing *generate.NotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	return p, err
}

// proxyStates is one proxy before and after the change.
type proxyStates struct {
	id                 ProxyID
	mesh               *meshStates
	from, to           *generate.Proxy // nil where it does not exist
	own                []string        // see names
	changes            []generate.Change
	config             []changedItem
	fromRules, toRules *ruleSet
	rules              []changedItem
	rulesPatch         jsonpatch.Patch
}

// compare finds out what changes.
func (x *proxyStates) compare(d *differ) error {
	x.changes = generate.Difference(x.from, x.to)
	var err error
	if x.config, err = d.config.items(x.changes); err != nil || !x.mayRule() {
		return err
	}
	if x.fromRules, err = rulesOf(x.mesh.from, x.id.Name); err != nil {
		return err
	}
	if x.toRules, err = rulesOf(x.mesh.to, x.id.Name); err != nil {
		return err
	}
	if x.rules, err = ruleItems(x.fromRules, x.toRules); err != nil {
		return err
	}
	x.rulesPatch, err = rulesPatch(x.fromRules, x.toRules)
	return err
}

// names lists what is said of a proxy and of no other one, longest first: its tags as it tells them to others, its
// services and addresses. A proxy that is not in both states, or changes in them, has none.
func (x *proxyStates) names() []string {
	var out []string
	for i, m := range [...]*generate.Mesh{x.mesh.from, x.mesh.to} {
		if m == nil || m.View.Dataplane(x.id.Name) == nil {
			return nil
		}
		dp, ok := m.View.Dataplane(x.id.Name).Spec.(*resource.Dataplane)
		if !ok {
			return nil
		}
		own := []string{mesh.TagString(m.View.ProxyTags(dp)), dp.Networking.Address}
		for j := range dp.Networking.Inbound {
			in := &dp.Networking.Inbound[j]
			own = append(own, in.Address, in.Tags[resource.TagService])
		}
		slices.SortFunc(own, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
		own = slices.DeleteFunc(slices.Compact(own), func(s string) bool { return s == "" })
		if i > 0 && !slices.Equal(own, out) {
			return nil
		}
		out = own
	}
	return out
}

// mayRule is false when the rules are known to be the same.
func (x *proxyStates) mayRule() bool {
	if x.id.Flavor == node.FlavorGRPC {
		return false // its config is made without policies
	}
	a, b := x.mesh.from, x.mesh.to
	if a == nil || b == nil || a.Policies == nil || b.Policies == nil || a.View.Catalog != b.View.Catalog {
		return true
	}
	p, q := a.View.Dataplane(x.id.Name), b.View.Dataplane(x.id.Name)
	return p == nil || q == nil || p.Digest != q.Digest || a.Policies.Match(p).Fingerprint != b.Policies.Match(q).Fingerprint
}

// tell puts what changes into words, with the causes.
func (x *proxyStates) tell(d *differ, p *ProxyDiff) error {
	p.Config, p.Rules = newPart(x.config), newPart(x.rules)
	n := 0
	for _, list := range [...][]changedItem{x.config, x.rules} {
		for i := range list {
			n += 1 + len(list[i].fields)
		}
	}
	if d.told > 0 && d.told+n > d.c.MaxTold {
		p.Truncated = true
		return nil
	}
	d.told += n
	p.Config.tell(x.config)
	p.Rules.tell(x.rules)
	var err error
	if p.Config.Patch, err = d.config.patch(x.from, x.to, x.changes); err != nil {
		return err
	}
	p.Rules.Patch = append(p.Rules.Patch, x.rulesPatch...)
	return d.attribute(x, p)
}
