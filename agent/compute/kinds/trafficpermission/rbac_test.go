package trafficpermission_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission"
	legacykind "github.com/nearside-mesh/nearside/agent/compute/kinds/trafficpermission/legacy"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// admits evaluates RBAC rules for a client with URIs in its certificate, like Envoy.
func admits(m *rbacv3.RBAC, uris []string) bool {
	matched := false
	for _, p := range m.GetPolicies() {
		for _, id := range p.Principals {
			matched = matched || holds(id, uris)
		}
	}
	return matched == (m.GetAction() == rbacv3.RBAC_ALLOW)
}

func holds(p *rbacv3.Principal, uris []string) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Any:
		return true
	case *rbacv3.Principal_NotId:
		return !holds(id.NotId, uris)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(p *rbacv3.Principal) bool { return !holds(p, uris) })
	case *rbacv3.Principal_Authenticated_:
		return slices.Contains(uris, id.Authenticated.PrincipalName.GetExact())
	}
	panic(fmt.Sprintf("a principal of a kind that is not made here: %v", p))
}

// certificate returns the URIs in the certificate of a client with tags.
func certificate(tags map[string]string) []string {
	uris := []string{"spiffe://default/" + tags[resource.TagService]}
	for k, v := range tags {
		if k != resource.TagService {
			uris = append(uris, "kuma://"+k+"/"+v)
		}
	}
	return uris
}

func plugin() policy.Plugin { return trafficpermission.Plugin(legacykind.Kind()) }

// apply applies the policies to a draft in the order of the generator.
func apply(c *policy.Context, d *draft.Draft) {
	plugin().Legacy[0].Apply(c, d)
	plugin().Apply(c, d)
}

// rulesOf returns the rules of documents for the dataplane backend-1 with an inbound of service
// "backend".
func rulesOf(t *testing.T, docs ...string) *policy.Rules {
	t.Helper()
	reg, err := resource.NewRegistry(append(resource.Core(), plugin().Kinds[0], plugin().Legacy[0].Descriptor)...)
	if err != nil {
		t.Fatal(err)
	}
	docs = append(docs, `{"type":"Mesh","name":"default"}`,
		`{"type":"Dataplane","mesh":"default","name":"backend-1","networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"backend","version":"1"}}]}}`)
	res, faults := reg.Decode("", []byte(strings.Join(docs, "\n---\n")))
	if len(faults) > 0 {
		t.Fatalf("%v", faults)
	}
	set := resource.NewSet(res)
	v, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := policy.NewIndex([]policy.Plugin{plugin()}, set, v, policy.Options{})
	return x.Rules(set.Get(resource.Key{Kind: "Dataplane", Mesh: "default", Name: "backend-1"}))
}

// TestForm contains cases in which Kuma's form of the rules is correct, and cases in which it would
// admit denied clients.
func TestForm(t *testing.T) {
	item := func(ref, action string) string {
		return `{"targetRef":` + ref + `,"default":{"action":"` + action + `"}}`
	}
	all, web, api, front := `{"kind":"Mesh"}`, `{"kind":"MeshService","name":"web"}`,
		`{"kind":"MeshService","name":"api"}`, `{"kind":"MeshSubset","tags":{"team":"front"}}`
	for _, c := range []struct {
		name  string
		items []string
		kuma  bool
	}{
		{"one rule", []string{item(all, "Allow")}, true},
		{"one service denied", []string{item(all, "Allow"), item(web, "Deny")}, true},
		{"two services denied", []string{item(all, "Allow"), item(web, "Deny"), item(api, "Deny")}, false},
		{"two services allowed", []string{item(all, "Deny"), item(web, "Allow"), item(api, "Allow")}, true},
		{"two services counted",
			[]string{item(all, "Allow"), item(web, "AllowWithShadowDeny"), item(api, "AllowWithShadowDeny")}, true},
		{"all but two counted", []string{item(all, "AllowWithShadowDeny"), item(web, "Allow"), item(api, "Allow")}, false},
		{"a service and a tag", []string{item(all, "Allow"), item(web, "Deny"), item(front, "AllowWithShadowDeny")}, true},
	} {
		doc := `{"type":"MeshTrafficPermission","mesh":"default","name":"p","spec":{"targetRef":{"kind":"Mesh"},"from":[` +
			strings.Join(c.items, ",") + `]}}`
		in := rulesOf(t, doc).Kind(trafficpermission.Kind).Inbound(0)
		want := in.Rules
		if c.kuma {
			want = in.Ordered()
		}
		got, _ := trafficpermission.FromRules("default", trafficpermission.PrincipalRules(in))
		if wanted, _ := trafficpermission.FromRules("default", want); !proto.Equal(got, wanted) {
			t.Errorf("%s: got %v\nwant %v", c.name, got, wanted)
		}
	}
}

// TestStrongestItemDecides creates random policies and checks that the filters admit exactly the
// clients that the strongest item admits, and count exactly those that it counts.
func TestStrongestItemDecides(t *testing.T) {
	services, teams, zones := []string{"web", "api", "redis"}, []string{"front", "back"}, []string{"east", "west"}
	actions := []string{"Allow", "Deny", "AllowWithShadowDeny"}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		pick := func(list []string) string { return list[rnd.IntN(len(list))] }
		ref := func() string {
			switch rnd.IntN(5) {
			case 0:
				return `{"kind":"Mesh"}`
			case 1:
				return `{"kind":"MeshService","name":"` + pick(services) + `"}`
			case 2:
				return `{"kind":"MeshSubset","tags":{"team":"` + pick(teams) + `"}}`
			case 3:
				return `{"kind":"MeshSubset","tags":{"team":"` + pick(teams) + `","zone":"` + pick(zones) + `"}}`
			}
			return `{"kind":"MeshServiceSubset","name":"` + pick(services) + `","tags":{"team":"` + pick(teams) + `"}}`
		}
		var docs []string
		for i := range 1 + rnd.IntN(3) {
			var items []string
			for range 1 + rnd.IntN(4) {
				items = append(items, `{"targetRef":`+ref()+`,"default":{"action":"`+pick(actions)+`"}}`)
			}
			top := pick([]string{`{"kind":"Mesh"}`, `{"kind":"MeshService","name":"backend"}`,
				`{"kind":"MeshSubset","tags":{"version":"1"}}`})
			docs = append(docs,
				fmt.Sprintf(`{"type":"MeshTrafficPermission","mesh":"default","name":"p%d","spec":{"targetRef":%s,"from":[%s]}}`,
					i, top, strings.Join(items, ",")))
		}
		k := rulesOf(t, docs...).Kind(trafficpermission.Kind)
		enforced, shadow := trafficpermission.FromRules("default", trafficpermission.PrincipalRules(k.Inbound(0)))
		if err := enforced.ValidateAll(); err != nil {
			t.Fatal(err)
		}
		for _, service := range append(services, "other") {
			for _, team := range append(teams, "") {
				for _, zone := range append(zones, "") {
					tags := map[string]string{resource.TagService: service, "team": team, "zone": zone}
					want := trafficpermission.Deny
					for _, p := range k.Policies {
						for _, it := range p.Spec.(*resource.Policy).From {
							if about(&it.TargetRef, tags) {
								want = it.Conf.(*trafficpermission.Conf).Action.Decision()
							}
						}
					}
					uris := certificate(tags)
					if got := admits(enforced, uris); got != (want != trafficpermission.Deny) {
						t.Fatalf("seed %d: %v is admitted: %v, the strongest item says %v\n%s\n%v",
							seed, tags, got, want, strings.Join(docs, "\n"), enforced)
					}
					if got := shadow == nil || admits(shadow, uris); got != (want != trafficpermission.AllowShadowDeny) {
						t.Fatalf("seed %d: %v is counted as denied: %v, the strongest item says %v\n%s",
							seed, tags, !got, want, strings.Join(docs, "\n"))
					}
				}
			}
		}
	}
}

func about(ref *resource.TargetRef, tags map[string]string) bool {
	if ref.Name != "" && ref.Name != tags[resource.TagService] {
		return false
	}
	for k, v := range ref.Tags {
		if tags[k] != v {
			return false
		}
	}
	return true
}

func TestLegacy(t *testing.T) {
	doc := func(name, from, to string) string {
		return `{"type":"TrafficPermission","mesh":"default","name":"` + name + `","sources":[` + from +
			`],"destinations":[{"match":` + to + `}]}`
	}
	web, front := certificate(map[string]string{resource.TagService: "web"}),
		certificate(map[string]string{resource.TagService: "web", "team": "front"})
	for _, c := range []struct {
		name       string
		docs       []string
		policy     string
		web, front bool
	}{
		{"none", nil, "", false, false},
		{"all", []string{doc("all", `{"match":{"kuma.io/service":"*"}}`, `{"kuma.io/service":"*"}`)}, "all", true, true},
		{"any value", []string{doc("p", `{"match":{"kuma.io/service":"web","team":"*"}}`, `{"kuma.io/service":"backend"}`)},
			"p", true, true},
		{"all tags", []string{doc("p", `{"match":{"kuma.io/service":"web","team":"front"}}`,
			`{"kuma.io/service":"backend"}`)}, "p", false, true},
		{"any selector",
			[]string{doc("p", `{"match":{"kuma.io/service":"api"}},{"match":{"kuma.io/service":"*","team":"front"}}`,
				`{"kuma.io/service":"backend"}`)}, "p", false, true},
		{"the one that names most of the destination", []string{
			doc("a", `{"match":{"kuma.io/service":"*"}}`, `{"kuma.io/service":"backend"}`),
			doc("b", `{"match":{"kuma.io/service":"api"}}`, `{"kuma.io/service":"backend","version":"1"}`),
		}, "b", false, false},
		{"elsewhere", []string{doc("p", `{"match":{"kuma.io/service":"*"}}`, `{"kuma.io/service":"redis"}`)}, "",
			false, false},
	} {
		d := inbound(false)
		apply(&policy.Context{Rules: rulesOf(t, c.docs...), View: view()}, d)
		f := d.Listeners[0].Chains[0].Network[0]
		m := f.Message.(*netrbacv3.RBAC)
		if f.Name != trafficpermission.FilterNetwork || m.StatPrefix != "inbound_10_0_0_1_80." || m.ValidateAll() != nil {
			t.Errorf("%s: %v", c.name, m)
		}
		names := ""
		for n := range m.Rules.Policies {
			names += n
		}
		if names != c.policy || admits(m.Rules, web) != c.web || admits(m.Rules, front) != c.front {
			t.Errorf("%s: policy %q, web %v, front %v: %v", c.name, names, admits(m.Rules, web), admits(m.Rules, front), m.Rules)
		}
	}
}

func view() *mesh.View { return &mesh.View{Name: "default", Spec: &resource.Mesh{}} }

// inbound returns a draft of an inbound with a chain for clients with certificates and one for
// others.
func inbound(http bool) *draft.Draft {
	chain := func(tls bool) *draft.Chain {
		if http {
			return &draft.Chain{TLS: tls, HTTP: &draft.HTTP{Filters: draft.PlainFilters}}
		}
		return &draft.Chain{TLS: tls, TCP: &tcpv3.TcpProxy{}}
	}
	return &draft.Draft{Listeners: []*draft.Listener{
		{Kind: draft.Inbound, Port: 80, Message: &listenerv3.Listener{Name: "inbound:10.0.0.1:80"},
			Chains: []*draft.Chain{chain(true), chain(false)}},
		{Kind: draft.Outbound, Message: &listenerv3.Listener{}, Chains: []*draft.Chain{chain(true)}},
		{Kind: draft.InboundPassthrough, Message: &listenerv3.Listener{}, Chains: []*draft.Chain{chain(true)}},
	}}
}

// TestGuardPosition checks that HTTP requests are guarded individually, except with a
// TrafficPermission, which guards connections. Guards are only at inbounds with client
// certificates, before all other filters.
func TestGuardPosition(t *testing.T) {
	allowAll := `{"type":"MeshTrafficPermission","mesh":"default","name":"p","spec":{"targetRef":{"kind":"Mesh"},"from":[{"targetRef":{"kind":"Mesh"},"default":{"action":"Allow"}}]}}`
	legacyAll := `{"type":"TrafficPermission","mesh":"default","name":"old","sources":[{"match":{"kuma.io/service":"*"}}],"destinations":[{"match":{"kuma.io/service":"*"}}]}`
	for _, c := range []struct {
		name    string
		docs    []string
		http    bool
		request bool // whether requests are guarded individually
		policy  string
	}{
		{"http by a MeshTrafficPermission", []string{allowAll, legacyAll}, true, true, trafficpermission.Kind},
		{"tcp by a MeshTrafficPermission", []string{allowAll, legacyAll}, false, false, trafficpermission.Kind},
		{"http by a TrafficPermission", []string{legacyAll}, true, false, "old"},
		{"tcp by a TrafficPermission", []string{legacyAll}, false, false, "old"},
		{"http without permissions", nil, true, true, ""},
		{"tcp without permissions", nil, false, false, ""},
	} {
		d := inbound(c.http)
		apply(&policy.Context{Rules: rulesOf(t, c.docs...), View: view()}, d)
		guarded := d.Listeners[0].Chains[0]
		var m *rbacv3.RBAC
		if c.request {
			if len(guarded.Network) != 0 || len(guarded.HTTP.Filters) != 2 ||
				guarded.HTTP.Filters[0].Name != trafficpermission.FilterHTTP {
				t.Fatalf("%s: %v %v", c.name, guarded.Network, guarded.HTTP.Filters)
			}
			m = guarded.HTTP.Filters[0].Message.(*httprbacv3.RBAC).Rules
		} else {
			if len(guarded.Network) != 1 || c.http && len(guarded.HTTP.Filters) != 1 {
				t.Fatalf("%s: %v", c.name, guarded.Network)
			}
			m = guarded.Network[0].Message.(*netrbacv3.RBAC).Rules
		}
		if _, ok := m.Policies[c.policy]; ok != (c.policy != "") || len(m.Policies) > 1 {
			t.Errorf("%s: %v", c.name, m)
		}
		for i, ch := range []*draft.Chain{d.Listeners[0].Chains[1], d.Listeners[1].Chains[0], d.Listeners[2].Chains[0]} {
			if len(ch.Network) > 0 || c.http && len(ch.HTTP.Filters) != 1 {
				t.Errorf("%s: chain %d without certificates has %v", c.name, i, ch)
			}
		}
	}
	if len(draft.PlainFilters) != 1 {
		t.Error("the shared filters were modified")
	}
}
