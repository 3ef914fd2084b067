package policy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"pgregory.net/rapid"
)

// TestRank merges policies of all ranks: specific policies override general ones, then the role
// decides, then the alphabetically first name. Lists are replaced, or appended if the kind requires
// it.
func TestRank(t *testing.T) {
	to := func(a, rest string) string {
		return "to: [{targetRef: {kind: Mesh}, default: {a: " + a + ", add: [" + a + "], " + rest + "}}]"
	}
	labelled := func(name, labels, target, rest string) string {
		return fmt.Sprintf("{type: MeshT, name: %s, labels: {%s}, spec: {targetRef: %s, %s}}\n---\n",
			name, labels, target, rest)
	}
	x := index(t, mesht("zzz", "{kind: Mesh}", to("zzz", "b: low, list: [l1, l2], sub: {x: 1, y: 1}, map: {k: v, l: w}"))+
		mesht("aaa", "{kind: Mesh}", to("aaa", "list: [l3], sub: {y: 0}, map: {k: u}"))+
		labelled("ggg", "kuma.io/origin: global", "{kind: Mesh}", to("ggg", ""))+
		labelled("ppp", "kuma.io/policy-role: producer", "{kind: Mesh}", to("ppp", ""))+
		mesht("sss", "{kind: MeshSubset, tags: {version: v1}}", to("sss", ""))+
		mesht("vvv", "{kind: MeshService, name: web}", to("vvv", ""))+
		mesht("uuu", "{kind: MeshServiceSubset, name: web, tags: {version: v1}}", to("uuu", ""))+
		mesht("ddd", "{kind: Dataplane, name: web}", to("ddd", ""))+
		mesht("eee", "{kind: Dataplane, labels: {team: front}}", to("eee", "")))
	want := `{} {"a":"uuu","b":"low","list":["l3"],"add":["ggg","zzz","aaa","ppp","eee","ddd","sss","vvv","uuu"],"sub":{"x":1,"y":0},"map":{"k":"u","l":"w"}}` +
		" ggg[0] zzz[0] aaa[0] ppp[0] eee[0] ddd[0] sss[0] vvv[0] uuu[0]"
	k := rulesOf(t, x, "web", "MeshT")
	if diff := cmp.Diff(want, show(k.To)); diff != "" {
		t.Error(diff)
	}
	if len(k.ToResources) != 1 || k.ToResources[0].Resource.Kind != "Mesh" {
		t.Errorf("rules for resources: %v", k.ToResources)
	}
}

// TestTo checks the rule of each kind of destination: tags, service resources, their ports, and
// routes.
func TestTo(t *testing.T) {
	x := index(t, `
{type: MeshService, name: real, labels: {app: b}, spec: {selector: {dataplaneTags: {kuma.io/service: backend}}, ports: [{port: 80, name: main}, {port: 90, targetPort: 91}]}}
---
{type: MeshHTTPRoute, name: route, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: backend}, names: [r1, r2]}]}}
---
`+mesht("all", "{kind: Mesh}", "to: [{targetRef: {kind: Mesh}, default: {a: all, b: all}}, "+
		"{targetRef: {kind: MeshService, name: backend}, default: {a: backend}}]")+
		mesht("real", "{kind: Mesh}", "to: [{targetRef: {kind: MeshService, labels: {app: b}}, default: {a: real}}, "+
			"{targetRef: {kind: MeshService, name: real, sectionName: '90'}, default: {a: port}}]")+
		mesht("routed", "{kind: MeshHTTPRoute, name: route}", "to: [{targetRef: {kind: Mesh}, default: {a: routed}}]")+
		mesht("missing", "{kind: Mesh}", "to: [{targetRef: {kind: MeshService, name: nope}, default: {a: nope}}, "+
			"{targetRef: {kind: MeshExternalService, name: out}, default: {a: nope}}]"))
	k := rulesOf(t, x, "web", "MeshT")
	tag := func(name string) draft.Service { return draft.Service{Name: name} }
	realKey := resource.Key{Kind: "MeshService", Mesh: "default", Name: "real"}
	port := func(section string, n uint32) draft.Service {
		return draft.Service{Kind: "MeshService", Name: "cluster", Resource: realKey, Section: section, Port: n}
	}
	for name, c := range map[string]struct {
		got  *policy.Rule
		want string
	}{
		"tag":           {k.Outbound(tag("backend")), `{service=backend} {"a":"backend","b":"all"} all[0] all[1]`},
		"other tag":     {k.Outbound(tag("web")), `{} {"a":"all","b":"all"} all[0]`},
		"real":          {k.Outbound(port("main", 80)), `{} {"a":"real","b":"all"} all[0] real[0]`},
		"real, by port": {k.Outbound(port("", 90)), `{} {"a":"port","b":"all"} all[0] real[1] real[0]`},
		"other real": {k.Outbound(draft.Service{Kind: "MeshService", Resource: resource.Key{Kind: "MeshService", Name: "x"}}),
			`{} {"a":"all","b":"all"} all[0]`},
		"route of a tag": {k.Route(tag("backend"), "r2", nil),
			`{service=backend,__rule-matches-hash__=r2} {"a":"routed","b":"all"} all[0] all[1] routed[0]`},
		"other route": {k.Route(tag("backend"), "r3", nil),
			`{service=backend} {"a":"backend","b":"all"} all[0] all[1]`},
		"route of a policy": {k.Route(port("main", 80), "x", []resource.Key{{Kind: "MeshHTTPRoute", Mesh: "default",
			Name: "route"}}), `{} {"a":"routed","b":"all"} all[0] routed[0]`},
	} {
		if got := showRule(c.got); name != "real, by port" && got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	if got := showRule(k.Outbound(port("", 90))); !strings.Contains(got, `"b":"all"`) ||
		strings.Contains(got, `"a":"all"`) {
		t.Errorf("port of a service resource: %s", got)
	}
	if rulesOf(t, x, "bare", "MeshP") != nil || (*policy.KindRules)(nil).Outbound(tag("x")) != nil ||
		(*policy.KindRules)(nil).Inbound(0) != nil {
		t.Error("a kind without policies has no rules")
	}
}

// TestSectionNames checks that a port named by name and by number has one rule, in which the
// stronger policy takes precedence.
func TestSectionNames(t *testing.T) {
	service := "{type: MeshService, name: real, spec: {selector: {dataplaneTags: {kuma.io/service: backend}}, " +
		"ports: [{port: 80, name: main}, {port: 90, targetPort: 91}]}}\n---\n"
	to := func(section, a string) string {
		return fmt.Sprintf("to: [{targetRef: {kind: MeshService, name: real, sectionName: '%s'}, default: {a: %s, "+
			"add: [%s]}}]", section, a, a)
	}
	for _, sections := range [][2]string{{"main", "80"}, {"80", "main"}, {"main", "main"}, {"80", "80"}} {
		x := index(t, service+mesht("weak", "{kind: Mesh}", to(sections[0], "weak"))+
			mesht("strong", "{kind: Dataplane, name: web}", to(sections[1], "strong")))
		k := rulesOf(t, x, "web", "MeshT")
		if len(k.ToResources) != 1 || k.ToResources[0].Section != "main" {
			t.Errorf("%v: want one rule for the port, got %v", sections, k.ToResources)
		}
		s := draft.Service{Kind: "MeshService", Resource: resource.Key{Kind: "MeshService", Mesh: "default", Name: "real"},
			Section: "main", Port: 80}
		if got, want := showRule(k.Outbound(s)), `{} {"a":"strong","add":["weak","strong"]} weak[0] strong[0]`; got != want {
			t.Errorf("%v: got %s, want %s", sections, got, want)
		}
	}
}

// TestFrom checks that the rules of each inbound for clients are disjoint, using negations.
func TestFrom(t *testing.T) {
	x := index(t, mesht("a", "{kind: Mesh}", `from: [
  {targetRef: {kind: Mesh}, default: {a: all}},
  {targetRef: {kind: MeshService, name: backend}, default: {a: backend}},
  {targetRef: {kind: MeshSubset, tags: {version: v1}}, default: {b: v1}}]`)+
		mesht("b", "{kind: MeshService, name: web-admin}", "from: [{targetRef: {kind: MeshServiceSubset, name: gw, "+
			"tags: {version: v1}}, default: {a: gw}}, {targetRef: {kind: MeshService, name: nope}, default: {a: n}}]"))
	k := rulesOf(t, x, "web", "MeshT")
	want := `{service=backend,version=v1} {"a":"backend","b":"v1"} a[0] a[1] a[2]
{service=backend,version!=v1} {"a":"backend"} a[0] a[1]
{service!=backend,version=v1} {"a":"all","b":"v1"} a[0] a[2]
{service!=backend,version!=v1} {"a":"all"} a[0]`
	if diff := cmp.Diff(want, show(k.Inbound(0).Rules)); diff != "" {
		t.Error(diff)
	}
	admin := show(k.Inbound(1).Rules)
	for _, line := range []string{
		`{service=gw,version=v1} {"a":"gw","b":"v1"} a[0] a[2] b[0]`, `{service=gw,version!=v1} {"a":"all"} a[0]`,
	} {
		if !strings.Contains(admin, line) {
			t.Errorf("no rule %s in\n%s", line, admin)
		}
	}
	if k.InboundAll(0) != nil {
		t.Error("a rule for some clients was returned for all clients")
	}
}

// TestPartition checks that items without common clients are not combined.
func TestPartition(t *testing.T) {
	var items []string
	for i := range 500 {
		items = append(items,
			fmt.Sprintf("{targetRef: {kind: MeshServiceSubset, name: s%d, tags: {own%d: x}}, default: {a: x}}", i, i))
	}
	x := index(t, mesht("many", "{kind: Mesh}", "from: ["+strings.Join(items, ",\n")+"]"))
	k := rulesOf(t, x, "web", "MeshT")
	if n := len(k.Inbound(0).Rules); n != 500 || k.Inbound(0).Overflow {
		t.Errorf("%d rules, overflow %v; want one for each of 500 services", n, k.Inbound(0).Overflow)
	}
}

// TestOverflow checks that the number of tag combinations is limited, with a warning, and that the
// strongest policy remains.
func TestOverflow(t *testing.T) {
	var doc strings.Builder
	for i := range 40 {
		doc.WriteString(mesht(fmt.Sprintf("p%02d", i), "{kind: Mesh}",
			fmt.Sprintf("from: [{targetRef: {kind: MeshSubset, tags: {t%d: x}}, default: {a: p%02d}}]", i, i)))
	}
	x := index(t, doc.String())
	k := rulesOf(t, x, "web", "MeshT")
	in := k.Inbound(0)
	if !in.Overflow || len(in.Rules) > 8192 || !warned(k.Warnings, "fewer tags") {
		t.Fatalf("overflow %v, %d rules, warnings %v", in.Overflow, len(in.Rules), k.Warnings)
	}
	if !strings.Contains(showRule(in.Rules[0]), `"a":"p00"`) {
		t.Errorf("the strongest policy was dropped: %s", showRule(in.Rules[0]))
	}
}

// TestFromRoute checks that rules for requests of a route are separate.
func TestFromRoute(t *testing.T) {
	x := index(t, "{type: MeshHTTPRoute, name: route, spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: MeshService, name: backend}, names: [r1]}]}}\n---\n"+
		mesht("r", "{kind: MeshHTTPRoute, name: route}", "from: [{targetRef: {kind: Mesh}, default: {a: r}}]"))
	in := rulesOf(t, x, "backend-1", "MeshT").Inbound(0)
	if in == nil || len(in.Rules) != 0 || len(in.Routes) != 1 || in.Routes[0].Route.Name != "route" ||
		show(in.Routes[0].Rules) != `{} {"a":"r"} r[0]` {
		t.Errorf("got %+v", in)
	}
	if rulesOf(t, x, "web", "MeshT") != nil {
		t.Error("the route has no inbound rules at web")
	}
}

// TestShadow checks that shadow policies apply, and supersede legacy policies, only on request.
func TestShadow(t *testing.T) {
	rs := decode(t, dataplanes+"{type: MeshT, name: s, labels: {kuma.io/effect: shadow}, spec: {targetRef: {kind: "+
		"Mesh}, to: [{targetRef: {kind: Mesh}, default: {a: x}}]}}\n---\n{type: Old, name: o, "+
		"sources: [{match: {kuma.io/service: '*'}}], destinations: [{match: {kuma.io/service: '*'}}], conf: {a: old}}\n")
	x := indexOf(t, rs, policy.Options{})
	if r := x.Rules(x.View.Dataplane("web")); r.Kind("MeshT") != nil || r.LegacyOutbound("Old", "backend") == nil {
		t.Error("a shadow policy is active")
	}
	x = indexOf(t, rs, policy.Options{Shadow: true})
	if r := x.Rules(x.View.Dataplane("web")); r.Kind("MeshT") == nil || r.LegacyOutbound("Old", "backend") != nil {
		t.Error("a shadow policy is inactive with Shadow")
	}
}

// TestLegacy ranks legacy policies by their number of tags, then by name.
func TestLegacy(t *testing.T) {
	old := func(name, from, to string) string {
		return fmt.Sprintf("{type: Old, name: %s, sources: [{match: {%s}}], destinations: [{match: {%s}}], "+
			"conf: {a: x}}\n---\n", name, from, to)
	}
	x := index(t, old("any", "kuma.io/service: '*'", "kuma.io/service: '*'")+
		old("b-web", "kuma.io/service: web", "kuma.io/service: '*'")+
		old("a-backend", "kuma.io/service: '*'", "kuma.io/service: backend")+
		old("both", "kuma.io/service: web, version: v1", "kuma.io/service: backend")+
		old("elsewhere", "kuma.io/service: gw", "kuma.io/service: backend")+
		"{type: OldP, name: p1, selectors: [{match: {kuma.io/service: '*'}}], conf: {a: x}}\n---\n"+
		"{type: OldP, name: p2, selectors: [{match: {kuma.io/service: web}}], conf: {a: x}}\n---\n")
	r := x.Rules(x.View.Dataplane("web"))
	for service, want := range map[string]string{"backend": "both", "web": "b-web", "other": "b-web"} {
		if got := r.LegacyOutbound("Old", service); got == nil || got.Name != want {
			t.Errorf("to %s: got %v, want %s", service, got, want)
		}
	}
	r = x.Rules(x.View.Dataplane("backend-1"))
	var got []string
	for _, p := range r.LegacyInbound("Old", 0) {
		got = append(got, p.Name)
	}
	if s := strings.Join(got, " "); s != "a-backend both elsewhere any b-web" {
		t.Errorf("at backend: %s", s)
	}
	if p := x.Rules(x.View.Dataplane("web")).LegacyProxy("OldP"); p == nil || p.Name != "p2" {
		t.Errorf("of the proxy: %v", p)
	}
	if r.LegacyInbound("Old", 7) != nil || r.LegacyOutbound("Nope", "x") != nil ||
		(*policy.Rules)(nil).LegacyProxy("OldP") != nil {
		t.Error("absent policies return a result")
	}
}

// TestOrderOfInput checks that the order of input does not affect the rules.
func TestOrderOfInput(t *testing.T) {
	targets := []string{"{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}", "{kind: MeshService, name: web}",
		"{kind: Dataplane, name: web}"}
	clients := []string{"{kind: Mesh}", "{kind: MeshSubset, tags: {version: v1}}", "{kind: MeshSubset, tags: {zone: a}}",
		"{kind: MeshService, name: backend}", "{kind: MeshServiceSubset, name: gw, tags: {version: v1}}"}
	dests := []string{"{kind: Mesh}", "{kind: MeshService, name: backend}", "{kind: MeshService, name: gw}"}
	rapid.Check(t, func(r *rapid.T) {
		var doc strings.Builder
		for i := range rapid.IntRange(1, 8).Draw(r, "policies") {
			pick := func(list []string) string { return rapid.SampledFrom(list).Draw(r, "ref") }
			fmt.Fprintf(&doc, "{type: MeshT, name: p%d, spec: {targetRef: %s, from: [{targetRef: %s, default: {a: a%d, "+
				"add: [x%d]}}, {targetRef: %s, default: {b: b%d}}], to: [{targetRef: %s, default: {a: a%d}}, {targetRef: %s, "+
				"default: {b: b%d, list: [l%d]}}]}}\n---\n",
				i, pick(targets), pick(clients), i, i, pick(clients), i, pick(dests), i, pick(dests), i, i)
		}
		rs := decode(t, dataplanes+doc.String())
		want := everything(t, indexOf(t, rs, policy.Options{}))
		rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0)).Shuffle(len(rs), func(i, j int) {
			rs[i], rs[j] = rs[j], rs[i]
		})
		if diff := cmp.Diff(want, everything(t, indexOf(t, rs, policy.Options{}))); diff != "" {
			r.Fatal(diff)
		}
	})
}
