package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

func generator(name, labels, selector, template string) string {
	return fmt.Sprintf("---\ntype: HostnameGenerator\nname: %s\nlabels: {%s}\nspec:\n  selector: {%s}\n  template: '%s'\n",
		name, labels, selector, template)
}

const allServices = "meshService: {matchLabels: {}}"

// names formats every name of a view with its owner.
func names(v *mesh.View) []string {
	var out []string
	for _, h := range v.Hostnames() {
		owner := h.Resource.Name
		if h.Kind == mesh.KindTag {
			owner = "tag " + h.Tag
		}
		line := h.Name + " = " + owner + " by " + string(h.Origin)
		if h.Generator.Name != "" {
			line += " " + h.Generator.Name
		}
		if h.Contested {
			line += ", contested"
		}
		out = append(out, line)
	}
	return out
}

func status(v *mesh.View, kind, name string) []string {
	for _, s := range v.Services() {
		if s.ID.Kind == kind && (s.Tag == name || s.Resource.Name == name) {
			var out []string
			for _, st := range v.HostnamesOf(s) {
				line := st.Reason
				if st.Hostname != "" {
					line += " " + st.Hostname
				}
				if st.Message != "" {
					line += ": " + st.Message
				}
				out = append(out, line)
			}
			return out
		}
	}
	return []string{"no such service"}
}

func warningsOf(v *mesh.View, kind string) []string {
	var out []string
	for _, w := range v.Warnings {
		if w.Resource.Kind == kind {
			out = append(out, w.Resource.Name+": "+w.Reason)
		}
	}
	return out
}

// TestHostnames checks the names of services of all kinds.
func TestHostnames(t *testing.T) {
	const exclusive = meshDoc + "meshServices: {mode: Exclusive}\n"
	redis := dataplane("redis-1", "10.0.0.1", "redis", "")
	external := "---\ntype: MeshExternalService\nmesh: default\nname: aurora\nspec:\n  match: {type: HostnameGenerator, " +
		"port: 443, protocol: tcp}\n  endpoints: [{address: aurora.example.com, port: 443}]\n"
	multi := "---\ntype: MeshMultiZoneService\nmesh: default\nname: all\nspec:\n" +
		"  selector: {meshService: {matchLabels: {app: redis}}}\n  ports: [{port: 80}]\n"
	for _, c := range []struct{ name, doc, want string }{
		{"tags alone", meshDoc + redis, "redis.mesh = tag redis by tag"},
		{"underscores", meshDoc + dataplane("w", "10.0.0.1", "web_shop_svc_80", ""),
			"web.shop.svc.80.mesh = tag web_shop_svc_80 by tag\nweb_shop_svc_80.mesh = tag web_shop_svc_80 by tag"},
		{"upper case folds", meshDoc + dataplane("w", "10.0.0.1", "Web", ""), "web.mesh = tag Web by tag"},
		{"exclusive has no tags", exclusive + redis, ""},
		{"derived, local", exclusive + redis + generator("local", "", "meshService: {matchLabels: {kuma.io/origin: zone}}",
			"{{ .DisplayName }}.svc.mesh.local"), "redis.svc.mesh.local = redis by generator local"},
		{"all fields", exclusive + redis + generator("g", "", allServices,
			`{{ .Name }}.{{.DisplayName}}.{{ .Mesh }}.{{ .Zone }}.{{ label "kuma.io/env" }}.mesh`),
			"redis.redis.default.default.universal.mesh = redis by generator g"},
		{"kinds are told apart", exclusive + redis + external + multi +
			generator("e", "", "meshExternalService: {matchLabels: {}}", "{{ .DisplayName }}.extsvc.mesh") +
			generator("m", "", "meshMultiZoneService: {matchLabels: {}}", "{{ .DisplayName }}.mzsvc.mesh"),
			"all.mzsvc.mesh = all by generator m\naurora.extsvc.mesh = aurora by generator e"},
		{"another zone", exclusive + service("redis-x7",
			"kuma.io/origin: global, kuma.io/zone: east, kuma.io/display-name: redis", "dataplaneTags: {a: b}", "{port: 80}") +
			generator("local", "", "meshService: {matchLabels: {kuma.io/origin: zone}}", "{{ .DisplayName }}.svc.mesh.local") +
			generator("synced", "", "meshService: {matchLabels: {kuma.io/origin: global}}",
				"{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local"),
			"redis.svc.east.mesh.local = redis-x7 by generator synced"},
		{"namespaces", exclusive + "---\napiVersion: kuma.io/v1alpha1\nkind: MeshService\nmetadata: {name: web, namespace: " +
			"shop, labels: {kuma.io/mesh: default}}\nspec: {selector: {dataplaneTags: {a: b}}, ports: [{port: 80}]}\n" +
			generator("k8s", "", "meshService: {matchLabels: {kuma.io/env: kubernetes}}", "{{ .Name }}.{{ .Namespace }}.svc"),
			"web.shop.svc = web.shop by generator k8s"},
		{"by status", exclusive + service("s", "", "dataplaneTags: {a: b}", "{port: 80}") +
			"status: {addresses: [{hostname: Given.example., origin: Kubernetes}]}\n", "given.example = s by status"},
		{"status before generators", exclusive + service("a", "", "dataplaneTags: {a: b}", "{port: 80}") +
			service("b", "", "dataplaneTags: {a: b}", "{port: 80}") + "status: {addresses: [{hostname: a.mesh}]}\n" +
			generator("g", "", allServices, "{{ .Name }}.mesh"),
			"a.mesh = b by status, contested\nb.mesh = b by generator g"},
		{"the first service by name", exclusive + service("b", "n: x", "dataplaneTags: {a: b}", "{port: 80}") +
			service("a", "n: x", "dataplaneTags: {a: b}", "{port: 80}") +
			generator("g", "", allServices, `{{ label "n" }}.mesh`), "x.mesh = a by generator g, contested"},
		{"the first generator by name", exclusive + service("a", "g: b", "dataplaneTags: {a: b}", "{port: 80}") + service("b",
			"g: a", "dataplaneTags: {a: b}", "{port: 80}") + generator("two", "", "meshService: {matchLabels: {g: b}}",
			"x.mesh") + generator("one", "", "meshService: {matchLabels: {g: a}}", "x.mesh"),
			"x.mesh = b by generator one, contested"},
		{"a generator of the zone first", exclusive + service("a", "g: b", "dataplaneTags: {a: b}", "{port: 80}") +
			service("b", "g: a", "dataplaneTags: {a: b}", "{port: 80}") +
			generator("two", "", "meshService: {matchLabels: {g: b}}", "x.mesh") +
			generator("one", "kuma.io/origin: global", "meshService: {matchLabels: {g: a}}", "x.mesh"),
			"x.mesh = a by generator two, contested"},
		{"one service, one name twice", exclusive + service("a", "", "dataplaneTags: {a: b}", "{port: 80}, {port: 81}") +
			generator("two", "", allServices, "x.mesh") + generator("one", "", allServices, "X.mesh"),
			"x.mesh = a by generator one"},
		{"generators before tags", meshDoc + redis + service("s", "", "dataplaneTags: {kuma.io/service: redis}",
			"{port: 8080}") + generator("g", "", allServices, "redis.mesh"), "redis.mesh = s by generator g, contested"},
		{"the own form of a tag first", meshDoc + dataplane("a", "10.0.0.1", "a_b", "") +
			dataplane("b", "10.0.0.2", "a.b", ""), "a.b.mesh = tag a.b by tag, contested\na_b.mesh = tag a_b by tag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, strings.Join(names(build(t, c.doc)), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHostnameStatus checks that each name that a service does not get has a reason.
func TestHostnameStatus(t *testing.T) {
	long := strings.Repeat("a", 60)
	v := build(t, meshDoc+"meshServices: {mode: Exclusive}\n"+
		service("a", "part: "+long+", v: "+long, "dataplaneTags: {x: y}", "{port: 80}")+
		service("b", "", "dataplaneTags: {x: y}", "{port: 80}")+
		generator("g1-label", "", allServices, `{{ label "v" }}.mesh`)+
		generator("g2-namespace", "", allServices, `{{ .Name }}.{{ .Namespace }}.mesh`)+
		generator("g3-long", "", allServices, `{{ label "part" }}{{ .Name }}`+strings.Repeat(`.{{ label "part" }}`, 4))+
		generator("g4-label-long", "", allServices, `{{ label "part" }}{{ label "v" }}.mesh`)+
		generator("g5-same", "", allServices, `x.mesh`))
	want := []string{
		"Generated " + long + ".mesh",
		`InvalidName: "a..mesh" is not a DNS name: the parts between the dots have 1 to 63 characters; .Namespace of the service is empty`,
		`InvalidName: "` + long + `aaaa` + `a.` + long[:14] + `…" is not a DNS name: a name has 1 to 253 characters`,
		`InvalidName: "` + strings.Repeat("a", 80) +
			`…" is not a DNS name: the parts between the dots have 1 to 63 characters`,
		"Generated x.mesh",
	}
	want[2] = strings.Replace(want[2], long+"aaaaa."+long[:14], long+"a."+long[:18], 1)
	if diff := cmp.Diff(want, status(v, mesh.KindMeshService, "a")); diff != "" {
		t.Error(diff)
	}
	want = []string{
		"TemplateError: the service has no label v, which the template uses",
		`InvalidName: "b..mesh" is not a DNS name: the parts between the dots have 1 to 63 characters; .Namespace of the service is empty`,
		"TemplateError: the service has no label part, which the template uses",
		"TemplateError: the service has no label part, which the template uses",
		"Collision x.mesh: the name belongs to MeshService/default/a, from HostnameGenerator/g5-same",
	}
	if diff := cmp.Diff(want, status(v, mesh.KindMeshService, "b")); diff != "" {
		t.Error(diff)
	}
	const both = "two services claim one hostname: x.mesh for MeshService/default/b (it belongs to " +
		"MeshService/default/a, " +
		"from HostnameGenerator/g5-same); change a template, a selector, a name or a tag"
	for _, w := range []string{"a: " + both, "b: " + both} {
		if !slices.Contains(warningsOf(v, "MeshService"), w) {
			t.Errorf("%v has no %q", warningsOf(v, "MeshService"), w)
		}
	}
	got := warningsOf(v, "HostnameGenerator")
	if len(got) != 5 || !slices.Contains(got, "g5-same: "+both) ||
		!slices.Contains(got, "g1-label: spec.template: no hostname for MeshService/default/b: the service has no "+
			"label v, which the template uses") {
		t.Errorf("warnings of generators: %q", got)
	}
}

// TestHostnamesAreBounded claims more names than allowed for one service, and one name for all
// services.
func TestHostnamesAreBounded(t *testing.T) {
	rs := bigMesh(200, 1, resource.MeshServicesExclusive)
	for i := range 100 {
		rs = append(rs,
			hostnameGenerator(fmt.Sprintf("g%02d", i), map[string]string{"app": "s00007"}, fmt.Sprintf("n%d.mesh", i)))
	}
	rs = append(rs, hostnameGenerator("h", nil, "same.mesh"))
	v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(v.Hostnames()); n != 33 {
		t.Errorf("there are %d names, want 32 and one", n)
	}
	got := status(v, mesh.KindMeshService, "s00007")
	if want := "LimitReached: 101 generators select the service, and only the first 32 are used: narrow the " +
		"selectors"; len(got) != 33 || got[32] != want {
		t.Errorf("%d statuses, the last is %q, want %q", len(got), got[len(got)-1], want)
	}
	for _, w := range v.Warnings {
		if len(w.Reason) > 2000 {
			t.Errorf("a warning has %d bytes: %.200s…", len(w.Reason), w.Reason)
		}
	}
	if n := len(warningsOf(v, "HostnameGenerator")); n != 1 {
		t.Errorf("%d warnings about generators, want one about the name that all services want: %q", n, v.Warnings)
	}
}

func hostnameGenerator(name string, labels map[string]string, template string) *resource.Resource {
	return &resource.Resource{Key: resource.Key{Kind: "HostnameGenerator", Name: name},
		Digest: digest("g", name, labels, template),
		Spec: &resource.HostnameGenerator{Template: template,
			Selector: resource.HostnameSelector{MeshService: &resource.LabelSelector{MatchLabels: labels}}}}
}

// TestHostnamesAreShared checks that a view reuses the names of the previous one until an input
// changes.
func TestHostnamesAreShared(t *testing.T) {
	rs := append(bigMesh(20, 2, resource.MeshServicesEverywhere), hostnameGenerator("g", nil, "{{ .Name }}.svc"))
	view := func(prev *mesh.View, more ...*resource.Resource) *mesh.View {
		v, err := mesh.Build(resource.NewSet(slices.Concat(rs, more)), "default", mesh.Options{}, prev)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := view(nil)
	moved := view(first, endpoint("s00003", 1, "10.200.0.1"))
	if &first.Hostnames()[0] != &moved.Hostnames()[0] {
		t.Error("an endpoint moved, and the names were recomputed")
	}
	added := view(moved, endpoint("new", 0, "10.200.0.2"))
	if h := added.Hostname("NEW.mesh."); h == nil || h.Tag != "new" {
		t.Errorf("the name of a new service is %+v", h)
	}
	if h := view(first, hostnameGenerator("g", nil, "{{ .Name }}.other")).Hostname("s00003.other"); h == nil ||
		h.Resource.Name != "s00003" {
		t.Errorf("the name by the changed template is %+v", h)
	}
	if h := added.Hostname("nothing.mesh"); h != nil {
		t.Errorf("a name that nothing has leads to %+v", h)
	}
}

// TestHostnamesHaveOneOwner builds random meshes. For any services and generators, every name has
// one owner, every name that a service owns is in the list, every service has a status for each
// generator that selects it, and the order of documents does not matter.
func TestHostnamesHaveOneOwner(t *testing.T) {
	pick := func(of ...string) *rapid.Generator[string] { return rapid.SampledFrom(of) }
	rapid.Check(t, func(t *rapid.T) {
		rs := []*resource.Resource{{Key: resource.Key{Kind: "Mesh", Name: "default"},
			Spec: &resource.Mesh{MeshServices: &resource.MeshServices{Mode: pick("Disabled",
				"Everywhere", "ReachableBackends", "Exclusive").Draw(t, "mode")}}}}
		for i := range rapid.IntRange(0, 4).Draw(t, "dataplanes") {
			rs = append(rs, endpoint(pick("a", "b", "a_b", "a.b", "C").Draw(t, "tag"), i, fmt.Sprintf("10.0.0.%d", i+1)))
		}
		for i := range rapid.IntRange(0, 6).Draw(t, "services") {
			spec := &resource.MeshService{Ports: []resource.MeshServicePort{{Port: 80}}}
			if n := pick("", "a.mesh", "x.svc").Draw(t, "address"); n != "" {
				spec.Status = &resource.ServiceStatus{Addresses: []resource.Address{{Hostname: n}}}
			}
			rs = append(rs, &resource.Resource{Key: resource.Key{Kind: "MeshService", Mesh: "default",
				Name: string(rune('a' + i))}, Digest: digest("s", i), Spec: spec,
				Labels: map[string]string{"n": pick("x", "y", "Y", "-", "").Draw(t, "n"),
					"kuma.io/origin": pick("zone", "global").Draw(t, "origin")}})
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "generators") {
			var labels map[string]string
			if l := pick("", "x", "y").Draw(t, "select"); l != "" {
				labels = map[string]string{"n": l}
			}
			g := hostnameGenerator(fmt.Sprint("g", i), labels, pick(`{{ .Name }}.mesh`, `{{ label "n" }}.svc`,
				`{{ label "m" }}.svc`, `x.svc`, `{{ .Zone }}.{{ .Name }}`).Draw(t, "template"))
			g.Labels = map[string]string{"kuma.io/origin": pick("zone", "global").Draw(t, "from")}
			rs = append(rs, g)
		}
		view := func() *mesh.View {
			v, err := mesh.Build(resource.NewSet(rs), "default", mesh.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		v := view()
		owner := map[string]string{}
		for _, h := range v.Hostnames() {
			if _, twice := owner[h.Name]; twice {
				t.Fatalf("%s is in the list twice", h.Name)
			}
			owner[h.Name] = h.Kind + "/" + h.Tag + h.Resource.Name
		}
		has := 0
		for _, s := range v.Services() {
			me := s.ID.Kind + "/" + s.Tag + s.Resource.Name
			generators := 0
			own := map[string]bool{}
			for _, st := range v.HostnamesOf(s) {
				if st.Generated != (st.Message == "") || st.Generated != (st.Reason == mesh.HostnameGenerated) {
					t.Fatalf("%s: a status is neither yes nor no with a reason: %+v", me, st)
				}
				if st.Generated && owner[st.Hostname] != me {
					t.Fatalf("%s says that %s is its own, the list says %q", me, st.Hostname, owner[st.Hostname])
				}
				if st.Reason == mesh.HostnameCollision && (owner[st.Hostname] == me || !v.Hostname(st.Hostname).Contested) {
					t.Fatalf("%s says that %s is another's, the list says %+v", me, st.Hostname, v.Hostname(st.Hostname))
				}
				if st.Origin == mesh.OriginGenerator {
					generators++
				}
				if st.Generated {
					own[st.Hostname] = true
				}
			}
			has += len(own)
			want := 0
			for _, r := range rs {
				if g, ok := r.Spec.(*resource.HostnameGenerator); ok && s.ID.Kind == mesh.KindMeshService {
					if n, asked := g.Selector.MeshService.MatchLabels["n"]; !asked || s.Labels["n"] == n {
						want++
					}
				}
			}
			if generators != want {
				t.Fatalf("%s has the statuses of %d generators, %d select it", me, generators, want)
			}
		}
		if has != len(owner) {
			t.Fatalf("services have %d names, the list %d", has, len(owner))
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		rebuilt := view()
		if diff := cmp.Diff(names(v), names(rebuilt)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(v.Warnings, rebuilt.Warnings); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzHostname fills any template with any label: the result is a valid name or a reason.
func FuzzHostname(f *testing.F) {
	f.Add(`{{ .DisplayName }}.svc.mesh.local`, "web", "k")
	f.Add(`{{ label "k" }}.{{ .Namespace }}.mesh`, "..", "k")
	f.Add(`{{ label "k" }}{{ label "k" }}`, strings.Repeat("x", 200), "k")
	f.Add(`{{`, "", "")
	f.Fuzz(func(t *testing.T, template, value, key string) {
		g := hostnameGenerator("g", nil, template)
		s := &resource.Resource{Key: resource.Key{Kind: "MeshService", Mesh: "default", Name: "s"},
			Labels: map[string]string{key: value},
			Spec:   &resource.MeshService{Ports: []resource.MeshServicePort{{Port: 80}}}}
		m := &resource.Resource{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}}
		v, err := mesh.Build(resource.NewSet([]*resource.Resource{m, s, g}), "default", mesh.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range v.Hostnames() {
			var faults []resource.Fault
			resource.NewValidator("", &faults).HostName(h.Name, "a name")
			if len(faults) > 0 || strings.ToLower(h.Name) != h.Name || strings.HasSuffix(h.Name, ".") {
				t.Errorf("%q is a name: %v", h.Name, faults)
			}
		}
		for _, st := range v.HostnamesOf(v.Services()[0]) {
			if !st.Generated && (st.Message == "" || len(st.Message) > 2000) {
				t.Errorf("the reason has %d bytes: %+v", len(st.Message), st)
			}
		}
	})
}

// TestPublicSuffix checks that an existing generator with a public suffix still names services, so
// that all nodes compute the same, and that it has a warning.
func TestPublicSuffix(t *testing.T) {
	v := build(t, meshDoc+service("web", "", "dataplaneTags: {a: b}", "{port: 80}")+
		generator("uk", "", allServices, "{{ .DisplayName }}.co.uk"))
	if list := v.Hostnames(); len(list) != 1 || list[0].Name != "web.co.uk" {
		t.Errorf("hostnames: %+v", list)
	}
	got := warningsOf(v, "HostnameGenerator")
	if len(got) != 1 || !strings.HasPrefix(got[0], `uk: spec.template: "co.uk" is a public suffix`) {
		t.Errorf("warnings: %q", got)
	}
}
