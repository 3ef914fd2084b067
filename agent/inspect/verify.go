package inspect

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/envoy/load"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Verification asks what the Envoys would make of a change of the resources.
type Verification struct {
	Set    *resource.Set // the present resources; nil: there are none
	After  *resource.Set // those after the change
	Change []resource.Key
	Shadow bool // afterwards shadow policies act like the others

	NewMesh NewMesh
	Made    map[string]*generate.Mesh // meshes that are made of Set already; nil: none
	// InForce returns the config that a proxy has now, nil where none is known. It spares work, and the steps from that
	// config to the new one are checked too. Nil: none is known.
	InForce func(ProxyID) *generate.Proxy
	Proxies []ProxyID // that are looked at, each once

	Decode func([]byte) (*resource.Resource, error) // reads a resource of its canonical form; nil: no fields are looked for
	// Try asks an Envoy of this host about a config. What it finds is told with the rest, its errors are notes. Nil: no
	// Envoy is asked.
	Try      Try
	Progress func(done, all int) // is told after each proxy; nil: nobody
	// MaxTrials bounds the configs that are made to find causes; 512. MaxFindings those that are told; 200. Zero takes the
	// values named here.
	MaxTrials, MaxFindings int
}

// Try asks an Envoy about the config of a proxy. Its findings have [RuleOfEnvoy].
type Try func(context.Context, *generate.Proxy) ([]finding.Finding, error)

// Verified is the answer: what would be new, told once for all proxies on which it is alike.
type Verified struct {
	Proxies  int       // looked at
	Of       int       // that were to be looked at; more than Proxies when the time was up
	Findings []Finding // that were not there before: those that block, then warnings
	Known    []Finding // of proxies that the change brings, what others had already
	More     int       // findings that are left out
	Notes    []Problem // what could not be checked
	// Warnings are what the agent itself has to say about resources of the change: what of them has no effect, or
	// another one than it reads.
	Warnings []mesh.Warning
}

// Blocking returns those that Envoy refuses or cannot use.
func (v *Verified) Blocking() []Finding {
	i := slices.IndexFunc(v.Findings, func(f Finding) bool { return !f.Blocks() })
	if i < 0 {
		i = len(v.Findings)
	}
	return v.Findings[:i]
}

// Surprises returns those that Envoy takes and that act otherwise than they read.
func (v *Verified) Surprises() []Finding { return v.Findings[len(v.Blocking()):] }

// Verify finds out what a change makes that the Envoys of some proxies would refuse, could not use, or would use
// otherwise than it reads, and what of the change is the cause. What is there before the change already is not told. It
// touches nothing. When ctx ends, what was found until then is the answer. The error is that of a mesh that cannot be
// derived.
func Verify(ctx context.Context, v Verification) (*Verified, error) {
	v.MaxTrials, v.MaxFindings = cmp.Or(v.MaxTrials, 512), cmp.Or(v.MaxFindings, 200)
	if v.Set == nil {
		v.Set = resource.NewSet(nil)
	}
	c := &verifier{v: &v, memo: generate.NewMemo(), meshes: map[string]*verifiedMesh{}, changed: map[resource.Key]bool{}, byKey: map[string]*verifiedGroup{},
		out: Verified{Of: len(v.Proxies), Findings: []Finding{}, Known: []Finding{}, Notes: []Problem{}}}
	for _, k := range v.Change {
		c.changed[k] = true
	}
	for _, id := range v.Proxies {
		if ctx.Err() != nil {
			break
		}
		if err := c.proxy(ctx, id); err != nil {
			return nil, err
		}
		c.out.Proxies++
		if v.Progress != nil {
			v.Progress(c.out.Proxies, c.out.Of)
		}
	}
	if err := c.settleNewcomers(ctx); err != nil {
		return nil, err
	}
	c.finish(ctx)
	return &c.out, nil
}

// verifier looks at one proxy after the other.
type verifier struct {
	v         *Verification
	memo      *generate.Memo
	checker   load.Checker // of the configs after the change
	before    load.Checker // of those before it: one that serves both would forget between the two
	meshes    map[string]*verifiedMesh
	changed   map[resource.Key]bool
	byKey     map[string]*verifiedGroup
	groups    []*verifiedGroup
	newcomers []newcomer
	trials    int
	of, taken *generate.Proxy // what the last proxy has, and what of it its Envoy has taken
	out       Verified
}

// verifiedMesh is a mesh before and after the change; nil where it does not exist.
type verifiedMesh struct{ from, to *generate.Mesh }

func (c *verifier) mesh(name string) (*verifiedMesh, error) {
	if m := c.meshes[name]; m != nil {
		return m, nil
	}
	m := &verifiedMesh{from: c.v.Made[name]}
	var err error
	if m.from == nil && c.v.Set.Get(meshKey(name)) != nil {
		if m.from, err = c.v.NewMesh(c.v.Set, name, nil); err != nil {
			return nil, err
		}
	}
	if c.v.After.Get(meshKey(name)) != nil {
		if m.to, err = c.v.NewMesh(c.v.After, name, m.from); err != nil {
			return nil, err
		}
		if c.v.Shadow {
			m.to = m.to.Shadow()
		}
		c.warn(m.to.View.Warnings)
		if m.to.Policies != nil {
			c.warn(m.to.Policies.Warnings)
		}
	}
	c.meshes[name] = m
	return m, nil
}

// unaffected reports whether nothing but endpoints can differ in the configs of a proxy.
func (m *verifiedMesh) unaffected(name string) bool {
	if m.from == m.to {
		return true
	}
	if m.from == nil || m.to == nil || m.from.Policies == nil || m.to.Policies == nil || m.from.View.Catalog != m.to.View.Catalog {
		return false
	}
	p, q := m.from.View.Dataplane(name), m.to.View.Dataplane(name)
	return p != nil && q != nil && p.Digest == q.Digest && m.from.Policies.Match(p).Fingerprint == m.to.Policies.Match(q).Fingerprint
}

// proxy looks at one proxy.
func (c *verifier) proxy(ctx context.Context, id ProxyID) error {
	m, err := c.mesh(id.Mesh)
	if err != nil || m.to == nil || m.unaffected(id.Name) {
		return err
	}
	now := c.inForce(id)
	to, failed := c.generate(m.to, id, now)
	if failed != nil {
		if _, already := c.generate(m.from, id, now); already == nil || already.Error() != failed.Error() {
			c.note(id, "no config can be made, it would keep what it has: "+failed.Error())
		}
		return nil
	}
	if to == nil {
		return nil
	}
	c.warn(to.Warnings)
	if now != nil && generate.SameConfig(now, to) {
		return nil
	}
	after := c.check(ctx, &c.checker, to, now)
	after = slices.DeleteFunc(after, func(f finding.Finding) bool { return f.Severity > finding.Warning })
	if len(after) == 0 {
		return nil
	}
	if m.from == nil || m.from.View.Dataplane(id.Name) == nil {
		c.newcomers = append(c.newcomers, newcomer{id, m, after})
		return nil
	}
	c.add(m, id, fresh(c.findingsBefore(ctx, m, id, now), after), false)
	return nil
}

func (c *verifier) inForce(id ProxyID) *generate.Proxy {
	if c.v.InForce == nil {
		return nil
	}
	return c.v.InForce(id)
}

// findingsBefore is what there is to be said about a proxy before the change.
func (c *verifier) findingsBefore(ctx context.Context, m *verifiedMesh, id ProxyID, now *generate.Proxy) []finding.Finding {
	from, err := c.generate(m.from, id, now)
	if err != nil || from == nil {
		return nil
	}
	return c.check(ctx, &c.before, from, now)
}

// check asks the rules, and an Envoy, about a config. now is what the proxy has; nil: it starts with the config.
func (c *verifier) check(ctx context.Context, by *load.Checker, p, now *generate.Proxy) []finding.Finding {
	out := c.rules(by, p, now)
	if c.v.Try == nil || p.Flavor == node.FlavorGRPC {
		return out
	}
	tried, err := c.v.Try(ctx, p)
	if err != nil {
		c.note(ProxyID{Mesh: p.Mesh, Name: p.Name}, err.Error())
	}
	return append(out, tried...)
}

// rules asks the rules about a config, and about the step to it from what the proxy has.
func (c *verifier) rules(by *load.Checker, p, now *generate.Proxy) []finding.Finding {
	if now == nil {
		return p.Check(by, nil)
	}
	if c.of != now {
		c.of, c.taken = now, now.Accepted(now.Check(&c.before, nil))
	}
	return p.Check(by, c.taken.Sealed)
}

// generate makes the config of a proxy; nil when the mesh has no such dataplane.
func (c *verifier) generate(m *generate.Mesh, id ProxyID, prev *generate.Proxy) (*generate.Proxy, error) {
	if m == nil {
		return nil, nil
	}
	p, err := generate.Generate(generate.Input{Mesh: m, Name: id.Name, Flavor: id.Flavor}, prev, c.memo)
	var missing *generate.NotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	return p, err
}

// maxNotes bounds what is told of that could not be checked, and of that has no effect.
const maxNotes = 20

// warn takes up what there is to be said about resources of the change.
func (c *verifier) warn(list []mesh.Warning) {
	for _, w := range list {
		if len(c.out.Warnings) >= maxNotes {
			return
		}
		if c.changed[w.Resource] && !slices.Contains(c.out.Warnings, w) {
			c.out.Warnings = append(c.out.Warnings, w)
		}
	}
}

func (c *verifier) note(id ProxyID, reason string) {
	n := Problem{Resource: resource.Key{Kind: kindDataplane, Mesh: id.Mesh, Name: id.Name}.String(), Severity: SeverityWarning, Reason: reason}
	if len(c.out.Notes) < maxNotes && !slices.Contains(c.out.Notes, n) {
		c.out.Notes = append(c.out.Notes, n)
	}
}
