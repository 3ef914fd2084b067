package change

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/explain"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/node"
)

// proxyDiffer compares one proxy.
type proxyDiffer struct {
	*proxyStates
	own                []string // see ownNames; none where they differ
	changes            []generate.Change
	config             []changedItem
	fromRules, toRules *ruleSet
	rules              []changedItem
	rulesPatch         jsonpatch.Patch
}

// proxy compares one proxy.
func (d *differ) proxy(s *proxyStates) error {
	if s.from == nil && s.to == nil && s.failed == nil && s.failedBefore == nil {
		return nil // it exists in neither state
	}
	d.out.Compared++
	p := ProxyDiff{Mesh: s.ProxyID.Mesh, Name: s.Name, Action: ActionUnchanged, Policies: []explain.Ref{}}
	if s.failed != nil {
		if err := s.worse(); err != nil {
			p.Action, p.Error = ActionFailed, err.Error()
			p.Config, p.Rules = newPart(nil), newPart(nil)
			d.out.Changed = true
			d.out.Proxies = append(d.out.Proxies, p)
		}
		return nil
	}
	if s.from != nil {
		note(d.was, s.from.Warnings)
	}
	if s.to != nil {
		note(d.are, s.to.Warnings)
	}
	x := &proxyDiffer{proxyStates: s, own: ownNames(s.mesh.from, s.Name)}
	if !slices.Equal(x.own, ownNames(s.mesh.to, s.Name)) {
		x.own = nil
	}
	d.config.own = x.own
	if err := x.compare(d); err != nil {
		return err
	}
	if len(x.config) == 0 && len(x.rulesPatch) == 0 {
		return nil
	}
	if len(x.config) > 0 {
		p.Action = actionOf(s.from != nil, s.to != nil)
		d.out.Changed = true
	}
	if err := x.tell(d, &p); err != nil {
		return err
	}
	d.out.Proxies = append(d.out.Proxies, p)
	return nil
}

// compare finds out what changes.
func (x *proxyDiffer) compare(d *differ) error {
	x.changes = generate.Difference(x.from, x.to)
	var err error
	if x.config, err = d.config.items(x.changes); err != nil || x.Flavor == node.FlavorGRPC || x.mesh.same(x.Name) {
		return err // the config for gRPC is made without policies
	}
	if x.fromRules, err = rulesOf(x.mesh.from, x.Name); err != nil {
		return err
	}
	if x.toRules, err = rulesOf(x.mesh.to, x.Name); err != nil {
		return err
	}
	if x.rules, err = ruleItems(x.fromRules, x.toRules); err != nil {
		return err
	}
	x.rulesPatch, err = rulesPatch(x.fromRules, x.toRules)
	return err
}

// tell puts what changes into words, with the causes.
func (x *proxyDiffer) tell(d *differ, p *ProxyDiff) error {
	p.Config, p.Rules = newPart(x.config), newPart(x.rules)
	n := 0
	for _, list := range [...][]changedItem{x.config, x.rules} {
		for i := range list {
			n += 1 + len(list[i].fields)
		}
	}
	if d.told > 0 && d.told+n > d.MaxTold {
		p.Truncated = true
		return nil
	}
	d.told += n
	p.Config.list(x.config)
	p.Rules.list(x.rules)
	var err error
	if p.Config.Patch, err = d.config.patch(x.from, x.to, x.changes); err != nil {
		return err
	}
	p.Rules.Patch = append(p.Rules.Patch, x.rulesPatch...)
	return d.attribute(x, p)
}
