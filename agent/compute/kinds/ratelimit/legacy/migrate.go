package legacy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/kinds/ratelimit"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/compute/successor"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// defaultStatus is Envoy's default status for requests above the limit.
const defaultStatus = 429

// migrate returns a MeshRateLimit for each RateLimit for all clients. It also does so for a limit
// for the clients of one service, if their certificates identify them as their tags do.
func migrate(in *policy.MigrateInput) policy.Migration {
	var out policy.Migration
	some := *in
	some.Policies = nil
	noted, byService := map[*resource.Resource]string{}, map[string][]*resource.Resource{}
	for _, r := range in.Policies {
		note := externalNote(in, r)
		if note != "" && !selectsInbounds(in, r) {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: note})
			continue
		}
		noted[r] = note
		spec, ok := r.Spec.(*resource.LegacyPolicy)
		if !ok || toolkit.SelectsAll(spec.Sources) {
			some.Policies = append(some.Policies, r)
			continue
		}
		service, why := byCertificate(in, spec.Sources)
		if why != "" {
			out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: noMatch + why + "; use a " +
				"MeshRateLimit whose rules match the SPIFFE IDs of their services, or one limit for all clients"})
			continue
		}
		byService[service] = append(byService[service], r)
	}
	for _, service := range slices.Sorted(maps.Keys(byService)) {
		if other := otherLimited(in, service, byService); other != "" {
			for _, r := range byService[service] {
				out.Without = append(out.Without, policy.WithoutSuccessor{Policy: r.Key, Why: fmt.Sprintf(noMatch+
					"a dataplane of %s also belongs to %s, whose clients have another limit, and MeshRateLimit may select another "+
					"one of the two limits than RateLimit; use a MeshRateLimit whose rules match both", service, other)})
			}
			byService[service] = nil
		}
	}
	m := migration{in: in, out: &out, noted: noted, confs: map[*successor.Unit]*ratelimit.HTTP{}, names: map[string]bool{}}
	narrow := len(out.Without) > 0
	m.all = m.plan(some.Policies)
	for _, u := range m.all { // weakest first
		successor.AddNote(&u.Notes,
			"it also limits clients outside the mesh, which send no tags; RateLimit limited only clients with tags")
		m.make(u, "")
	}
	matches := false
	for _, service := range slices.Sorted(maps.Keys(byService)) {
		for _, u := range m.plan(byService[service]) {
			matches = true
			m.make(u, service)
		}
	}
	out.Changes = changes(narrow, matches)
	return out
}

// migration holds the state of a migration.
type migration struct {
	in    *policy.MigrateInput
	out   *policy.Migration
	noted map[*resource.Resource]string
	all   []*successor.Unit // for all clients
	confs map[*successor.Unit]*ratelimit.HTTP
	names map[string]bool // of new policies
}

// plan returns the units of policies that compete with each other.
func (m *migration) plan(policies []*resource.Resource) []*successor.Unit {
	in := *m.in
	in.Policies = policies
	in.NameExists = func(kind, name string) bool {
		return m.names[name] || m.in.NameExists != nil && m.in.NameExists(kind, name)
	}
	plan := successor.NewPlan(&in, successor.PlanOptions{Kinds: []string{ratelimit.Kind}, Inbound: true,
		SupersededBy: toolkit.SupersededByAny(m.in, ratelimit.Kind)})
	m.out.Without = append(m.out.Without, plan.Without...)
	for _, u := range plan.Units {
		m.names[u.Name] = true
	}
	return plan.Units
}

// make adds the policy of a unit, for all clients or, unless service is empty, for those of a
// service.
func (m *migration) make(u *successor.Unit, service string) {
	old := toolkit.LegacyConf[Conf](u.Policy)
	if old == nil || old.HTTP == nil {
		return
	}
	conf := old.HTTP.converted()
	weaker := u.Weaker
	if service != "" { // limits for all clients are merged into those of a match
		weaker = slices.Concat(slices.DeleteFunc(slices.Clone(m.all), func(w *successor.Unit) bool {
			return !successor.Meet(w.Match, u.Match)
		}), u.Weaker)
	}
	for _, w := range weaker {
		override(conf, m.confs[w], &u.Notes)
	}
	m.confs[u] = conf
	successor.AddNote(&u.Notes, m.noted[u.Policy])
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

// noMatch begins the reasons why a limit for some clients has no successor.
const noMatch = "MeshRateLimit identifies clients by certificates, not by tags, and this limit is for some clients: "

// byCertificate returns the service whose clients sources select, or the reason why their
// certificates do not identify them as their tags do.
func byCertificate(in *policy.MigrateInput, sources []resource.LegacySelector) (service, why string) {
	b := in.Index.View.Spec.MTLSEnabled()
	switch {
	case b == nil:
		return "", "without mTLS, clients have no certificates"
	case b.Permissive() || slices.ContainsFunc(in.Index.Policies("MeshTLS"), permissive):
		return "", "inbounds also accept plain text (mode PERMISSIVE), which has no certificates"
	case len(sources) != 1:
		return "", "RateLimit counts requests of several sources together, and MeshRateLimit counts each match separately"
	}
	service = sources[0].Match[resource.TagService]
	if len(sources[0].Match) != 1 || service == "" {
		return "", "certificates contain only kuma.io/service"
	}
	return service, ""
}

// permissive reports whether a MeshTLS makes inbounds accept plain text.
func permissive(r *resource.Resource) bool {
	spec, ok := r.Spec.(*resource.Policy)
	return ok && slices.ContainsFunc(spec.InboundItems(), func(it resource.PolicyItem) bool {
		conf, err := json.Marshal(it.Conf) // the type belongs to another plugin
		return err != nil || bytes.Contains(conf, []byte(`"mode":"Permissive"`))
	})
}

// otherLimited returns another service with a limit for its clients that shares a dataplane with
// service; "" if there is none.
func otherLimited(in *policy.MigrateInput, service string, byService map[string][]*resource.Resource) string {
	for _, d := range in.Index.View.Dataplanes() {
		names := in.Index.View.ProxyTags(d.Spec.(*resource.Dataplane))[resource.TagService]
		if !slices.Contains(names, service) {
			continue
		}
		for _, name := range names {
			if _, is := byService[name]; is && name != service {
				return name
			}
		}
	}
	return ""
}

// externalNote returns a note if a policy limits ExternalServices, which has no successor; "" if it
// does not.
func externalNote(in *policy.MigrateInput, r *resource.Resource) string {
	var names []string
	for _, s := range in.Index.View.Services() {
		if s.ID.Kind == mesh.KindTag && s.Outside != nil && policy.LegacyReaches(r, s.ID.Name) {
			names = append(names, s.ID.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(
		"MeshRateLimit applies only to inbounds, so nothing replaces the limit of requests to services outside "+
			"the mesh (%s): the limit ends where a MeshRateLimit selects the client's proxy, and at a ZoneEgress when this "+
			"policy is deleted", successor.FirstNames(names))
}

// selectsInbounds reports whether a policy selects connections to some dataplane.
func selectsInbounds(in *policy.MigrateInput, r *resource.Resource) bool {
	return slices.ContainsFunc(in.Index.View.Dataplanes(), func(d *resource.Resource) bool {
		return in.Index.SelectLegacy(r, d, true).Selected
	})
}

// override handles fields that a policy with lower precedence sets, because targetRef policies are
// merged.
func override(h, weak *ratelimit.HTTP, notes *[]string) {
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
		successor.AddNote(notes, "a policy with lower precedence sets response headers, and merging cannot unset them, "+
			"so responses above this limit have them too")
	}
}

// changes explains the differences between the config of MeshRateLimit and RateLimit. narrow is
// true if limits for some clients have no successor, matches if some limits match certificates.
func changes(narrow, matches bool) []policy.Change {
	inboundWhy := "the limit applies to all requests, so clients with tags need no separate route"
	if narrow {
		inboundWhy = fmt.Sprintf("limits for all clients need no separate route, and limits for some clients end, "+
			"because %s does not identify clients by tags", ratelimit.Kind)
	}
	if matches {
		inboundWhy += "; limits for the clients of a service match the SPIFFE ID in their certificates instead of the tags " +
			"that they send"
	}
	outboundWhy := "the limit of requests that leave the mesh ends, because " + ratelimit.Kind +
		" applies only to inbounds"
	var out []policy.Change
	for _, c := range []struct{ listener, why string }{{"inbound:*", inboundWhy}, {"outbound:*", outboundWhy}} {
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
