package change

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// proxyDiffer compares one proxy.
type proxyDiffer struct {
	*proxyStates
	lost       error    // why its config can no longer be generated
	own        []string // see ownNames; empty if they differ
	changes    []generate.Change
	config     []changedItem
	patch      jsonpatch.Patch // nil until made
	fromRules  *ruleSet
	rules      []changedItem
	rulesPatch jsonpatch.Patch
}

// look compares the states of a proxy.
func (d *differ) look(w *worker, s *proxyStates) {
	if s.from == nil && s.to == nil && s.failed == nil && s.failedBefore == nil {
		return // it exists in neither state
	}
	x := &proxyDiffer{proxyStates: s}
	s.diff = x
	if s.failed != nil {
		x.lost = s.worse(w)
		return
	}
	x.own = ownNames(s.mesh.from, s.Name)
	if !slices.Equal(x.own, ownNames(s.mesh.to, s.Name)) {
		x.own = nil
	}
	if s.err = x.compare(w); s.err == nil && d.listed < d.MaxTold && d.bytes < d.MaxBytes {
		s.err = x.makePatch(w)
	}
}

// compare finds the changes.
func (x *proxyDiffer) compare(w *worker) error {
	w.config.own = x.own
	x.changes = generate.Difference(x.from, x.to)
	var err error
	if x.config, err = w.config.items(x.changes); err != nil || x.Flavor == node.FlavorGRPC || x.mesh.same(w, x.Name) {
		return err // configs for gRPC ignore policies
	}
	if x.fromRules, err = w.rulesOf(x.mesh.from, x.Name); err != nil {
		return err
	}
	to, err := w.rulesOf(x.mesh.to, x.Name)
	if err != nil {
		return err
	}
	rules, err := w.rulesDiff(x.fromRules, to)
	if err == nil {
		x.rules, x.rulesPatch = rules.items, rules.patch
	}
	return err
}

// makePatch computes the patch of the config once.
func (x *proxyDiffer) makePatch(w *worker) (err error) {
	if x.patch == nil && !x.NoPatches {
		w.config.own = x.own
		x.patch, err = w.config.patch(x.from, x.to, x.changes)
	}
	return err
}

// take collects the changes of a proxy. It must be called in the order of the proxies. A nil differ
// ignores them.
func (d *differ) take(s *proxyStates) error {
	if d == nil || !s.compared {
		return nil
	}
	s.mesh.compared = true
	if s.mesh.from == s.mesh.to {
		if s.Set.Get(resource.Key{Kind: kindDataplane, Mesh: s.ProxyID.Mesh, Name: s.Name}) != nil {
			d.out.Compared++
		}
		return nil
	}
	x := s.diff
	if x == nil || s.err != nil {
		return s.err
	}
	d.out.Compared++
	p := api.ProxyDiff{Mesh: s.ProxyID.Mesh, Name: s.Name, Action: api.ActionUnchanged, Policies: []api.Ref{}}
	if s.failed != nil {
		if x.lost != nil {
			p.Action, p.Error = api.ActionFailed, x.lost.Error()
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

// tell fills in the changes with their causes.
func (x *proxyDiffer) tell(d *differ, p *api.ProxyDiff) error {
	p.Config, p.Rules = newPart(x.config), newPart(x.rules)
	n := 0
	for _, list := range [...][]changedItem{x.config, x.rules} {
		for i := range list {
			n += 1 + len(list[i].fields)
		}
	}
	full := d.listed > 0 && (d.listed+n > d.MaxTold || d.bytes > d.MaxBytes)
	if !full {
		if err := x.makePatch(d.crew[0]); err != nil {
			return err
		}
		size := sizeOf(x.patch)
		if full = d.listed > 0 && d.bytes+size > d.MaxBytes; !full {
			d.bytes += size
		}
	}
	if full {
		p.Truncated = true
		return nil
	}
	d.listed += n
	listItems(&p.Config, x.config)
	listItems(&p.Rules, x.rules)
	if !x.NoPatches {
		p.Config.Patch = x.patch
		p.Rules.Patch = append(p.Rules.Patch, x.rulesPatch...)
	}
	return d.attribute(x, p)
}
