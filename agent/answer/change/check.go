package change

import (
	"context"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Verified is the result of a check: the new findings, each listed once for all proxies that share
// it.
type Verified struct {
	Proxies  int           // checked proxies
	Of       int           // proxies to check; more than Proxies if the check ended early
	Findings []api.Finding // new findings: blocking ones, then warnings
	Known    []api.Finding // findings of new proxies that other proxies already had
	More     int           // number of findings and warnings beyond the limits
	Notes    []api.Problem // proxies that could not be checked
	// Warnings are the agent's warnings about resources of the change that have no effect, or a
	// different effect than specified.
	Warnings []mesh.Warning

	states *states        // for Lacking
	keys   []resource.Key // of the change
}

// Blocking returns the findings about resources that Envoy rejects or cannot use.
func (v *Verified) Blocking() []api.Finding {
	i := slices.IndexFunc(v.Findings, func(f api.Finding) bool { return !f.Blocks() })
	if i < 0 {
		i = len(v.Findings)
	}
	return v.Findings[:i]
}

// NotBlocking returns the findings that are warnings or lint: Envoy accepts the resource.
func (v *Verified) NotBlocking() []api.Finding { return v.Findings[len(v.Blocking()):] }

// verifier checks proxies one after the other.
type verifier struct {
	*states
	ctx       context.Context
	keys      []resource.Key // resources of the change, in the order of the question
	changed   map[resource.Key]bool
	proxies   []generate.ProxyID
	byKey     map[string]*group
	groups    []*group
	newcomers []newcomer
	trials    int
	warned    map[mesh.Warning]bool
	out       Verified
}

func newVerifier(ctx context.Context) *verifier {
	return &verifier{ctx: ctx, changed: map[resource.Key]bool{}, warned: map[mesh.Warning]bool{},
		byKey: map[string]*group{},
		out:   Verified{Findings: []api.Finding{}, Known: []api.Finding{}, Notes: []api.Problem{}}}
}

// begin returns the proxies to check: those to compare, and the dataplanes of the change whose
// config may differ.
func (v *verifier) begin(s *states, keys []resource.Key, compared []generate.ProxyID) []generate.ProxyID {
	v.states, v.keys = s, keys
	v.out.states, v.out.keys = s, keys
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

// verifiedProxy holds the results of a proxy.
type verifiedProxy struct {
	checked bool // the config after the change was checked
	notes   []api.Problem
	newcome bool // the change creates the proxy
	found   []finding.Finding
}

// exists reports whether the mesh of a proxy exists after the change.
func (v *verifier) exists(x *proxyStates) bool { return v.after.Get(meshKey(x.ProxyID.Mesh)) != nil }

// wants reports whether to check the config of a proxy after the change. It returns false after the
// deadline.
func (v *verifier) wants(w *worker, x *proxyStates) bool {
	if v.ctx.Err() != nil || !v.exists(x) {
		return false
	}
	x.verified = &verifiedProxy{}
	return x.mesh.from != x.mesh.to && !x.mesh.same(w, x.Name)
}

// look checks one proxy.
func (v *verifier) look(w *worker, x *proxyStates) {
	out := x.verified
	if x.failed != nil {
		if err := x.worse(w); err != nil {
			x.note("no config can be made, it would keep its config: " + err.Error())
		}
		return
	}
	if x.to == nil {
		return
	}
	out.checked = true
	if x.now != nil && (generate.SameConfig(x.now, x.to) || v.stillFits(w, x)) {
		return
	}
	found := v.check(w, &w.checker, x, x.to)
	if x.now != nil && !slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Severity.Blocks() }) {
		w.takes(x.to) // it becomes active when the change is stored
	}
	found = slices.DeleteFunc(found, func(f finding.Finding) bool { return f.Severity > finding.Warning })
	switch {
	case len(found) == 0:
	case x.mesh.from == nil || x.mesh.from.View.Dataplane(x.Name) == nil:
		out.newcome, out.found = true, found
	default:
		out.found = fresh(v.findingsBefore(w, x), found)
	}
}

// stillFits reports whether the config after the change has the same findings as the active config,
// of which nothing is withheld.
func (v *verifier) stillFits(w *worker, x *proxyStates) bool {
	return v.Try == nil && x.Fit != nil && x.Fit(x.ProxyID) && x.to.Build == x.now.Build && x.to.Host == x.now.Host &&
		x.to.StillFit(&w.checker, x.now.Sealed)
}

// take collects the results of a proxy. It must be called in the order of the proxies.
func (v *verifier) take(x *proxyStates) {
	out := x.verified
	if out == nil {
		return
	}
	v.out.Proxies++
	v.warnOf(x.mesh)
	if out.checked {
		v.warn(x.to.Warnings, nil)
	}
	for _, n := range out.notes {
		v.note(n)
	}
	switch {
	case len(out.found) == 0:
	case out.newcome:
		v.newcomers = append(v.newcomers, newcomer{x.ProxyID, x.mesh, out.found})
	default:
		v.add(x.mesh, x.ProxyID, out.found, false)
	}
}

// findingsBefore returns the findings of a proxy before the change.
func (v *verifier) findingsBefore(w *worker, x *proxyStates) []finding.Finding {
	if x.makeFrom(w); x.failedBefore != nil || x.from == nil {
		return nil
	}
	return v.check(w, &w.earlier, x, x.from)
}

// check applies the rules, and possibly a real Envoy, to the config of a proxy, given its active
// config or a fresh start.
func (v *verifier) check(w *worker, by *check.Checker, x *proxyStates, p *generate.Proxy) []finding.Finding {
	against := w.accepted(x.now, x.Fit != nil && x.Fit(x.ProxyID))
	out := p.Check(by, against)
	if p == x.to {
		x.against, x.ruled = against, slices.Clone(out)
	}
	if v.Try == nil || p.Flavor == node.FlavorGRPC {
		return out
	}
	tried, err := v.Try(v.ctx, p)
	if err != nil {
		x.note(err.Error())
	}
	return append(out, tried...)
}

// accepted returns the part of the active config that the proxy's Envoy has accepted, which is all
// of it if fit is set.
func (w *worker) accepted(now *generate.Proxy, fit bool) *draft.Sealed {
	switch {
	case now == nil:
		return &draft.Sealed{}
	case fit:
		return now.Sealed
	}
	return w.takenOf(now).Sealed
}

// takenOf returns the part of a config that an Envoy accepts.
func (w *worker) takenOf(p *generate.Proxy) *generate.Proxy {
	if w.whole[wholeKeyOf(p)] {
		return p
	}
	taken := p.Accepted(p.Check(&w.earlier, nil))
	if taken == p {
		w.takes(p)
	}
	return taken
}

// takes records that an Envoy accepts all of a config.
func (w *worker) takes(p *generate.Proxy) {
	if len(w.whole) >= maxWhole {
		clear(w.whole)
	}
	w.whole[wholeKeyOf(p)] = true
}

// wholeKey holds the inputs that decide which part of a config an Envoy accepts. Secrets do not
// matter.
type wholeKey struct {
	versions [draft.NumTypes]string
	build    *finding.Build
	host     *finding.Host // nil if it does not matter
}

func wholeKeyOf(p *generate.Proxy) wholeKey {
	k := wholeKey{p.Sealed.Versions, p.Build, p.Host}
	k.versions[draft.RankSecret] = ""
	if !p.Host.Matters() {
		k.host = nil
	}
	return k
}

// maxNotes is the maximum number of listed notes and of listed warnings without effect.
const maxNotes = 20

// warnOf collects the warnings of a mesh once.
func (v *verifier) warnOf(m *meshStates) {
	if m.from != m.to && !m.checked {
		m.checked = true
		before := map[mesh.Warning]bool{}
		note(before, v.warningsOf(m.from))
		v.warn(v.warningsOf(m.to), before)
	}
}

// warnOfOthers collects the warnings of changed meshes of which no proxy was checked.
func (v *verifier) warnOfOthers() error {
	for _, r := range v.after.Kind(kindMesh) {
		if v.ctx.Err() != nil || v.Mesh != "" && r.Name != v.Mesh {
			continue
		}
		m, err := v.mesh(r.Name)
		if err != nil {
			return err
		}
		v.warnOf(m)
	}
	return nil
}

// warn collects new warnings about resources of the change, and about resources without a document,
// such as a MeshService that is derived from tags.
func (v *verifier) warn(list []mesh.Warning, before map[mesh.Warning]bool) {
	for _, w := range list {
		switch {
		case v.warned[w] || !v.changed[w.Resource] && (before == nil || before[w] || v.after.Get(w.Resource) != nil):
		case len(v.out.Warnings) >= v.MaxWarnings:
			v.out.More++
		default:
			v.warned[w] = true
			v.out.Warnings = append(v.out.Warnings, w)
		}
	}
}

// note records why a proxy could not be checked.
func (x *proxyStates) note(reason string) {
	key := resource.Key{Kind: kindDataplane, Mesh: x.ProxyID.Mesh, Name: x.Name}
	if x.verified != nil {
		x.verified.notes = append(x.verified.notes,
			api.Problem{Resource: key.String(), Severity: api.SeverityWarning, Reason: reason})
	}
}

func (v *verifier) note(n api.Problem) {
	if len(v.out.Notes) < maxNotes && !slices.Contains(v.out.Notes, n) {
		v.out.Notes = append(v.out.Notes, n)
	}
}
