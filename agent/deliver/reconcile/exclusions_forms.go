package reconcile

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// formOf returns the first usable config without a set of policies of an exclusion, or nil if there
// is none: its form of the resource differs from all that the client rejected, and restricts access
// as much.
func (p *pass) formOf(key node.Key, s *proxyState, id draft.ResourceID, e *exclusion) *generate.Proxy {
	full := s.proxy.Resource(id)
	for ; e.next < len(e.sets); e.next++ {
		from := p.without(key, s, e.sets[e.next])
		if from == nil {
			continue
		}
		form := from.Resource(id)
		if form == nil {
			return from
		}
		if form.Version == full.Version || e.refused[form.Version] ||
			rollout.ReasonOfPort(e.found.Reason) && draft.SameAddresses(id, full, form) {
			continue
		}
		if versions := [2]string{full.Version, form.Version}; e.allowed != versions {
			if lacks := unguarded(id, full, form); lacks != "" {
				e.lacks = lacks
				continue
			}
			e.allowed = versions
		}
		return from
	}
	return nil
}

// without returns the config of a proxy without a set of policies, or nil if there is none.
func (p *pass) without(key node.Key, s *proxyState, set omission) *generate.Proxy {
	ref, err := node.ParseRef(key.ID)
	if err != nil {
		return nil
	}
	m, x := p.meshes[ref.Mesh], &s.exclusions
	if m == nil {
		return nil
	}
	id := set.id()
	out, err := guard(p.r.o.Log, "proxy "+key.ID+" without policies", func() (*generate.Proxy, error) {
		v := p.r.variants[ref.Mesh+" "+id]
		if v == nil || v.of != m {
			v = &variant{of: m, mesh: set.mesh(m)}
			p.r.variants[ref.Mesh+" "+id] = v
		}
		v.pass = p.r.passes
		in := generate.Input{Mesh: v.mesh, Name: ref.Name, Flavor: key.Flavor, Build: p.build(key), Secrets: s.secrets}
		return p.r.o.Generate(in, x.configs[id], p.r.variantMemo)
	})
	if err != nil {
		if p.defect(err); x.configs[id] != nil {
			delete(x.configs, id)
		}
		return nil
	}
	if x.configs == nil {
		x.configs = map[string]*generate.Proxy{}
	}
	x.configs[id] = out
	return out
}

// forgetVariants drops meshes without policies that no proxy needs any longer.
func (p *pass) forgetVariants() {
	if len(p.r.variants) == 0 {
		return
	}
	for id, v := range p.r.variants {
		if v.pass != p.r.passes {
			delete(p.r.variants, id)
		}
	}
	if len(p.r.variants) == 0 {
		p.r.variantMemo = generate.NewMemo()
	}
}

// reportRestriction warns about a resource that a proxy does not get in a form without policies,
// because that form restricts access less.
func (p *pass) reportRestriction(s *proxyState, id draft.ResourceID, e *exclusion) {
	if e.lacks == "" {
		return
	}
	b := e.found.Blame[0]
	s.problems = append(s.problems, api.Problem{Resource: b.Type + "/" + b.Mesh + "/" + b.Name,
		Severity: api.SeverityWarning, Reason: fmt.Sprintf("%s is not in force with this policy, and the agent does not "+
			"send it without the policy, because %s would be missing, which restricts access: fix the policy",
			clip.Value(id.Name), e.lacks)})
}

// unguarded returns what restricts access in a form of a resource and not in another one, or "".
func unguarded(id draft.ResourceID, from, to *draft.Resource) string {
	return danger.Unguarded(id.TypeURL, from.Body(), to.Body())
}

func refersTo(r *draft.Resource, rank int, name string) bool {
	return r.Refs().Has(envoy.Kind(rank), name)
}

// substituteWithheld returns a config in which forms without policies replace resources that the
// check rejects, its findings, and the rejections of these resources. A form that the check rejects
// as well is not used.
func (p *pass) substituteWithheld(key node.Key, s *proxyState, base *generate.Proxy, findings []finding.Finding,
	check func(*generate.Proxy) []finding.Finding) (*generate.Proxy, []finding.Finding, []draft.Rejection) {
	blocked := blockedBy(findings)
	for {
		out, list := p.substitute(key, s, base, blocked)
		if out == base {
			return base, findings, nil
		}
		rest := check(out)
		still, usable := blockedBy(rest), true
		for i := range list {
			if still[list[i].ID] && list[i].Instead != nil {
				s.exclusions.of[list[i].ID].refused[list[i].Instead.Version] = true
				usable = false
			}
		}
		if usable {
			return out, rest, list
		}
	}
}

// blockedBy returns the resources that findings block.
func blockedBy(findings []finding.Finding) map[draft.ResourceID]bool {
	out := map[draft.ResourceID]bool{}
	for _, w := range generate.Withheld(findings) {
		out[w.ID] = true
	}
	return out
}
