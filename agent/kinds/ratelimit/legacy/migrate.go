package legacy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// defaultStatus is Envoy's answer beyond the limit.
const defaultStatus = 429

// migrate makes a MeshRateLimit of each RateLimit about all clients: MeshRateLimit tells clients by their certificates, and not by tags.
func migrate(in *policy.MigrateInput) policy.Migration {
	var out policy.Migration
	some := *in
	some.Policies = nil
	noted := map[*resource.Resource]string{}
	for _, r := range in.Policies {
		beyond := beyondMesh(in, r)
		if beyond != "" && !arrives(in, r) {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: beyond})
			continue
		}
		noted[r] = beyond
		if spec, ok := r.Spec.(*resource.LegacyPolicy); ok && !forAll(spec.Sources) {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: "MeshRateLimit does not tell clients by tags, and this limit is for some of them: write a MeshRateLimit whose rules have matches with the SPIFFE IDs of their services, or choose a limit for all"})
			continue
		}
		some.Policies = append(some.Policies, r)
	}
	narrow := len(out.Without) > 0
	plan := some.Plan(policy.PlanOptions{Kinds: []string{ratelimit.Kind}, Inbound: true, SupersededBy: toolkit.SupersededByAny(in, ratelimit.Kind)})
	out.Without = append(out.Without, plan.Without...)
	confs := map[*policy.Unit]*ratelimit.HTTP{}
	for _, u := range plan.Units { // the weakest first
		old := toolkit.LegacyConf[Conf](u.Policy)
		if old == nil || old.HTTP == nil {
			continue
		}
		conf := old.HTTP.current()
		for _, w := range u.Weaker {
			over(conf, confs[w], &u.Notes)
		}
		confs[u] = conf
		policy.AddNote(&u.Notes, "it also limits clients outside the mesh, which send no tags; RateLimit was about clients with tags alone")
		policy.AddNote(&u.Notes, noted[u.Policy])
		out.Policies = append(out.Policies, policy.Migrated{
			Kind: ratelimit.Kind, Name: u.Name, From: []resource.Key{u.Policy.Key}, Notes: u.Notes,
			Spec: &resource.Policy{TargetRef: toolkit.OfSidecars(u.Target), From: []resource.PolicyItem{{
				TargetRef: resource.TargetRef{Kind: "Mesh"}, Conf: &ratelimit.Conf{Local: &ratelimit.Local{HTTP: conf}},
			}}},
		})
	}
	out.Changes = changes(narrow)
	return out
}

// beyondMesh says what of a policy ends without a successor, as it is about ExternalServices; "" for nothing.
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
	return fmt.Sprintf("MeshRateLimit limits requests where they arrive, so nothing replaces the limit of those to services outside of the mesh (%s): it ends where a MeshRateLimit selects the proxy of the client, and at a ZoneEgress when this policy is deleted", strings.Join(names, ", "))
}

// arrives reports whether a policy is about connections to some dataplane.
func arrives(in *policy.MigrateInput, r *resource.Resource) bool {
	return slices.ContainsFunc(in.Index.View.Dataplanes(), func(d *resource.Resource) bool { return in.Index.SelectLegacy(r, d, true).Selected })
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
	if w := weak.OnRateLimit.Headers; w != nil && (h.OnRateLimit.Headers == nil || len(h.OnRateLimit.Headers.Set) == 0 && len(w.Set) > 0 || len(h.OnRateLimit.Headers.Add) == 0 && len(w.Add) > 0) {
		policy.AddNote(notes, "a weaker policy gives headers to answers, and merging cannot take them away: answers beyond this limit have them too")
	}
}

// changes explains what MeshRateLimit writes otherwise than RateLimit. narrow is true where limits for some clients are
// left out.
func changes(narrow bool) []policy.Change {
	arriving := "the limit is for all requests, so it needs no route of its own for clients with tags"
	if narrow {
		arriving = fmt.Sprintf("limits for all clients need no route of their own, and those for some clients end: %s does not tell them by tags", ratelimit.Kind)
	}
	leaving := "the limit of requests that leave the mesh ends: " + ratelimit.Kind + " limits requests where they arrive"
	var out []policy.Change
	for _, c := range []struct{ listener, why string }{{"inbound:*", arriving}, {"outbound:*", leaving}} {
		manager := "Listener/" + c.listener + "/filterChains/*/filters/envoy.filters.network.http_connection_manager/typedConfig/"
		for _, path := range []string{
			"RouteConfiguration/" + c.listener + "/virtualHosts/*/routes/**", manager + "routeConfig/virtualHosts/*/routes/**",
			manager + "httpFilters/envoy.filters.http.local_ratelimit/**",
		} {
			out = append(out, policy.Change{Path: path, Before: policy.Any, After: policy.Any, Why: c.why})
		}
	}
	return out
}
