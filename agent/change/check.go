package change

import (
	"context"
	"slices"

	"github.com/nearside-mesh/nearside/agent/envoy/finding"
	"github.com/nearside-mesh/nearside/agent/envoy/load"
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Verified is the answer: what would be new, told once for all proxies on which it is alike.
type Verified struct {
	Proxies  int       // looked at
	Of       int       // that were to be looked at; more than Proxies when the check ended early
	Findings []Finding // that were not there before: those that block, then warnings
	Known    []Finding // of proxies that the change brings, what others had already
	More     int       // findings beyond the bound
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

// NotBlocking returns the findings that are warnings or lint: Envoy accepts the resource.
func (v *Verified) NotBlocking() []Finding { return v.Findings[len(v.Blocking()):] }

// verifier checks one proxy after the other.
type verifier struct {
	*states
	ctx       context.Context
	keys      []resource.Key // of the resources of the change, in the order of the question
	changed   map[resource.Key]bool
	proxies   []generate.ProxyID
	checker   load.Checker // of the configs after the change
	earlier   load.Checker // of those before it: one that serves both would forget between the two
	byKey     map[string]*group
	groups    []*group
	newcomers []newcomer
	trials    int
	last      *generate.Proxy // what the last proxy has
	taken     *generate.Proxy // what of it its Envoy has taken
	out       Verified
}

func newVerifier(ctx context.Context) *verifier {
	return &verifier{ctx: ctx, changed: map[resource.Key]bool{}, byKey: map[string]*group{},
		out: Verified{Findings: []Finding{}, Known: []Finding{}, Notes: []Problem{}}}
}

// begin returns the proxies that are looked at: those that are compared, and the dataplanes of the change, where they may
// differ from before.
func (v *verifier) begin(s *states, keys []resource.Key, compared []generate.ProxyID) []generate.ProxyID {
	v.states, v.keys = s, keys
	for _, k := range keys {
		v.changed[k] = true
		if k.Kind == kindDataplane && s.Dataplane == "" && (s.Mesh == "" || s.Mesh == k.Mesh) {
			compared = append(compared, generate.ProxyID{Mesh: k.Mesh, Name: k.Name, Flavor: node.FlavorEnvoy})
		}
	}
	v.proxies = distinctProxies(compared)
	for _, id := range v.proxies {
		if s.after.Get(meshKey(id.Mesh)) != nil {
			v.out.Of++
		}
	}
	return v.proxies
}

// wants reports whether the config of a proxy after the change is to be checked.
func (v *verifier) wants(x *proxyStates) bool {
	if v.ctx.Err() != nil || v.after.Get(meshKey(x.ProxyID.Mesh)) == nil {
		return false
	}
	v.out.Proxies++
	if x.mesh.from == x.mesh.to {
		return false
	}
	if m := x.mesh; !m.checked {
		m.checked = true
		v.warn(warningsOf(m.to))
	}
	return !x.mesh.same(x.Name)
}

// proxy checks one proxy.
func (v *verifier) proxy(x *proxyStates) {
	if x.failed != nil {
		if err := x.worse(); err != nil {
			v.note(x.ProxyID, "no config can be made, it would keep its config: "+err.Error())
		}
		return
	}
	if x.to == nil {
		return
	}
	v.warn(x.to.Warnings)
	if x.now != nil && generate.SameConfig(x.now, x.to) {
		return
	}
	found := v.check(&v.checker, x.to, x.now)
	found = slices.DeleteFunc(found, func(f finding.Finding) bool { return f.Severity > finding.Warning })
	switch {
	case len(found) == 0:
	case x.mesh.from == nil || x.mesh.from.View.Dataplane(x.Name) == nil:
		v.newcomers = append(v.newcomers, newcomer{x.ProxyID, x.mesh, found})
	default:
		v.add(x.mesh, x.ProxyID, fresh(v.findingsBefore(x), found), false)
	}
}

// findingsBefore returns what there is to say about a proxy before the change.
func (v *verifier) findingsBefore(x *proxyStates) []finding.Finding {
	if x.makeFrom(); x.failedBefore != nil || x.from == nil {
		return nil
	}
	return v.check(&v.earlier, x.from, x.now)
}

// check asks the rules, and an Envoy, about a config. now is what the proxy has; nil: it starts with the config.
func (v *verifier) check(by *load.Checker, p, now *generate.Proxy) []finding.Finding {
	out := v.rules(by, p, now)
	if v.Try == nil || p.Flavor == node.FlavorGRPC {
		return out
	}
	tried, err := v.Try(v.ctx, p)
	if err != nil {
		v.note(generate.ProxyID{Mesh: p.Mesh, Name: p.Name}, err.Error())
	}
	return append(out, tried...)
}

// rules asks the rules about a config, and about the step to it from what the proxy has.
func (v *verifier) rules(by *load.Checker, p, now *generate.Proxy) []finding.Finding {
	if now == nil {
		return p.Check(by, nil)
	}
	if v.last != now {
		v.last, v.taken = now, now.Accepted(now.Check(&v.earlier, nil))
	}
	return p.Check(by, v.taken.Sealed)
}

// maxNotes bounds what is told of that could not be checked, and of that has no effect.
const maxNotes = 20

// warn takes up what there is to be said about resources of the change.
func (v *verifier) warn(list []mesh.Warning) {
	for _, w := range list {
		if len(v.out.Warnings) >= maxNotes {
			return
		}
		if v.changed[w.Resource] && !slices.Contains(v.out.Warnings, w) {
			v.out.Warnings = append(v.out.Warnings, w)
		}
	}
}

func (v *verifier) note(id generate.ProxyID, reason string) {
	n := Problem{Resource: resource.Key{Kind: kindDataplane, Mesh: id.Mesh, Name: id.Name}.String(), Severity: SeverityWarning, Reason: reason}
	if len(v.out.Notes) < maxNotes && !slices.Contains(v.out.Notes, n) {
		v.out.Notes = append(v.out.Notes, n)
	}
}
