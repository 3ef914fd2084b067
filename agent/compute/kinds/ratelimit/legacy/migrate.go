package legacy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// defaultStatus is Envoy's answer beyond the limit.
const defaultStatus = 429

// migrate makes a MeshRateLimit of each RateLimit about all clients, and of one about the clients
// of one service where their certificates say the same as their tags.
func migrate(in *policy.MigrateInput) policy.Migration {
	var out policy.Migration
	some := *in
	some.Policies = nil
	noted, of := map[*resource.Resource]string{}, map[string][]*resource.Resource{}
	for _, r := range in.Policies {
		beyond := beyondMesh(in, r)
		if beyond != "" && !arrives(in, r) {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: beyond})
			continue
		}
		noted[r] = beyond
		spec, ok := r.Spec.(*resource.LegacyPolicy)
		if !ok || forAll(spec.Sources) {
			some.Policies = append(some.Policies, r)
			continue
		}
		service, why := byCertificate(in, spec.Sources)
		if why != "" {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: untold + why + "; write a " +
				"MeshRateLimit whose rules have matches with the SPIFFE IDs of their services, or choose a limit for all"})
			continue
		}
		of[service] = append(of[service], r)
	}
	for _, service := range slices.Sorted(maps.Keys(of)) {
		if other := beside(in, service, of); other != "" {
			for _, r := range of[service] {
				out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: fmt.Sprintf(untold+"a dataplane of "+
					"%s is one of %s too, for whose clients there is another limit: of two matches that hold for a client "+
					"another one may decide than of two RateLimits; write a MeshRateLimit whose rules have matches for both",
					service, other)})
			}
			of[service] = nil
		}
	}
	m := migration{in: in, out: &out, noted: noted, confs: map[*policy.Unit]*ratelimit.HTTP{}, taken: map[string]bool{}}
	narrow := len(out.Without) > 0
	m.all = m.plan(some.Policies)
	for _, u := range m.all { // the weakest first
		policy.AddNote(&u.Notes,
			"it also limits clients outside the mesh, which send no tags; RateLimit was about clients with tags alone")
		m.make(u, "")
	}
	told := false
	for _, service := range slices.Sorted(maps.Keys(of)) {
		for _, u := range m.plan(of[service]) {
			told = true
			m.make(u, service)
		}
	}
	out.Changes = changes(narrow, told)
	return out
}

// migration is one in the making.
type migration struct {
	in    *policy.MigrateInput
	out   *policy.Migration
	noted map[*resource.Resource]string
	all   []*policy.Unit // about all clients
	confs map[*policy.Unit]*ratelimit.HTTP
	taken map[string]bool // names
}

// plan makes units of policies that compete with each other.
func (m *migration) plan(policies []*resource.Resource) []*policy.Unit {
	in := *m.in
	in.Policies = policies
	in.Taken = func(kind, name string) bool {
		return m.taken[name] || m.in.Taken != nil && m.in.Taken(kind, name)
	}
	plan := in.Plan(policy.PlanOptions{Kinds: []string{ratelimit.Kind}, Inbound: true,
		SupersededBy: toolkit.SupersededByAny(m.in, ratelimit.Kind)})
	m.out.Without = append(m.out.Without, plan.Without...)
	for _, u := range plan.Units {
		m.taken[u.Name] = true
	}
	return plan.Units
}

// make makes the policy of a unit: about all clients, or about those of a service.
func (m *migration) make(u *policy.Unit, service string) {
	old := toolkit.LegacyConf[Conf](u.Policy)
	if old == nil || old.HTTP == nil {
		return
	}
	conf := old.HTTP.current()
	weaker := u.Weaker
	if service != "" { // limits for all are merged into those of a match
		weaker = slices.Concat(slices.DeleteFunc(slices.Clone(m.all), func(w *policy.Unit) bool {
			return !policy.Meet(w.Match, u.Match)
		}), u.Weaker)
	}
	for _, w := range weaker {
		over(conf, m.confs[w], &u.Notes)
	}
	m.confs[u] = conf
	policy.AddNote(&u.Notes, m.noted[u.Policy])
	item := resource.PolicyItem{TargetRef: resource.TargetRef{Kind: "Mesh"},
		Conf: &ratelimit.Conf{Local: &ratelimit.Local{HTTP: conf}}}
	spec := &resource.Policy{TargetRef: toolkit.OfSidecars(u.Target), From: []resource.PolicyItem{item}}
	if service != "" {
		item.Matches = []resource.ClientMatch{{SpiffeID: &resource.SpiffeIDMatch{Type: resource.MatchExact,
			Value: resource.SPIFFEID(m.in.Index.View.Name, service)}}}
		spec.From, spec.Rules = nil, []resource.PolicyItem{item}
	}
	m.out.Policies = append(m.out.Policies,
		policy.Migrated{Kind: ratelimit.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes, Spec: spec})
}

// untold begins the reasons why a limit for some clients has no successor.
const untold = "MeshRateLimit tells clients by their certificates, not by tags, and this limit is for some of them: "

// byCertificate returns the service whose clients sources are about, or why their certificates do
// not say the same as their tags.
func byCertificate(in *policy.MigrateInput, sources []resource.LegacySelector) (service, why string) {
	b := in.Index.View.Spec.MTLSEnabled()
	switch {
	case b == nil:
		return "", "without mTLS they have none"
	case b.Permissive() || slices.ContainsFunc(in.Index.Policies("MeshTLS"), permissive):
		return "", "inbounds take plain text too (mode PERMISSIVE), and whoever sends it has none"
	case len(sources) != 1:
		return "", "requests of several sources are counted together, and those of several matches each by themselves"
	}
	service = sources[0].Match[resource.TagService]
	if len(sources[0].Match) != 1 || service == "" {
		return "", "in these stands kuma.io/service alone"
	}
	return service, ""
}

// permissive reports whether a MeshTLS has inbounds take plain text too.
func permissive(r *resource.Resource) bool {
	spec, ok := r.Spec.(*resource.Policy)
	return ok && slices.ContainsFunc(spec.Arriving(), func(it resource.PolicyItem) bool {
		conf, err := json.Marshal(it.Conf) // of another plugin
		return err != nil || bytes.Contains(conf, []byte(`"mode":"Permissive"`))
	})
}

// beside returns another service for whose clients there is a limit, of a dataplane of a service;
// "" for none.
func beside(in *policy.MigrateInput, service string, of map[string][]*resource.Resource) string {
	for _, d := range in.Index.View.Dataplanes() {
		names := in.Index.View.ProxyTags(d.Spec.(*resource.Dataplane))[resource.TagService]
		if !slices.Contains(names, service) {
			continue
		}
		for _, name := range names {
			if _, is := of[name]; is && name != service {
				return name
			}
		}
	}
	return ""
}

// beyondMesh says what of a policy ends without a successor, as it is about ExternalServices; ""
// for nothing.
func beyondMesh(in *policy.MigrateInput, r *resource.Resource) string {
	var names []string
	for _, s := range in.Index.View.Services() {
		if s.ID.Kind == mesh.KindTag && s.Outside != nil && policy.LegacyReaches(r, s.ID.Name) {
			names = append(names, s.ID.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	if len(names) > 3 {
		names = append(names[:3:3], "…")
	}
	return fmt.Sprintf("MeshRateLimit limits requests where they arrive, so nothing replaces the limit of those to "+
		"services outside of the mesh (%s): it ends where a MeshRateLimit selects the proxy of the client, "+
		"and at a ZoneEgress when this policy is deleted", strings.Join(names, ", "))
}

// arrives reports whether a policy is about connections to some dataplane.
func arrives(in *policy.MigrateInput, r *resource.Resource) bool {
	return slices.ContainsFunc(in.Index.View.Dataplanes(), func(d *resource.Resource) bool {
		return in.Index.SelectLegacy(r, d, true).Selected
	})
}

// forAll reports whether one of the sources is every service of the mesh.
func forAll(sources []resource.LegacySelector) bool {
	return slices.ContainsFunc(sources, func(s resource.LegacySelector) bool {
		return len(s.Match) == 1 && s.Match[resource.TagService] == "*"
	})
}

// over gives what a weaker policy gives: source-destination policies are not merged.
func over(h, weak *ratelimit.HTTP, notes *[]string) {
	if weak == nil || weak.OnRateLimit == nil {
		return
	}
	if h.OnRateLimit == nil {
		h.OnRateLimit = &ratelimit.OnRateLimit{}
	}
	if h.OnRateLimit.Status == nil && weak.OnRateLimit.Status != nil {
		h.OnRateLimit.Status = new(uint32(defaultStatus))
	}
	if w := weak.OnRateLimit.Headers; w != nil && (h.OnRateLimit.Headers == nil ||
		len(h.OnRateLimit.Headers.Set) == 0 && len(w.Set) > 0 || len(h.OnRateLimit.Headers.Add) == 0 && len(w.Add) > 0) {
		policy.AddNote(notes, "a weaker policy gives headers to answers, and merging cannot take them away: answers beyond "+
			"this limit have them too")
	}
}

// changes explains what MeshRateLimit writes otherwise than RateLimit. narrow is true where limits
// for some clients are left out, told where they are not.
func changes(narrow, told bool) []policy.Change {
	arriving := "the limit is for all requests, so it needs no route of its own for clients with tags"
	if narrow {
		arriving = fmt.Sprintf("limits for all clients need no route of their own, and those for some clients end: %s does "+
			"not tell them by tags", ratelimit.Kind)
	}
	if told {
		arriving += "; limits for the clients of a service know them by the SPIFFE ID in their certificates, " +
			"instead of the tags that they send"
	}
	leaving := "the limit of requests that leave the mesh ends: " + ratelimit.Kind + " limits requests where they arrive"
	var out []policy.Change
	for _, c := range []struct{ listener, why string }{{"inbound:*", arriving}, {"outbound:*", leaving}} {
		manager := "Listener/" + c.listener +
			"/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/"
		for _, path := range []string{
			"RouteConfiguration/" + c.listener + "/virtualHosts/*/routes/**", manager + "routeConfig/virtualHosts/*/routes/**",
			manager + "httpFilters/envoy.filters.http.local_ratelimit/**",
		} {
			out = append(out, policy.Change{Path: path, Before: policy.Any, After: policy.Any, Why: c.why})
		}
	}
	return out
}
