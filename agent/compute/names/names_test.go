package names_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
	"github.com/nearside-mesh/nearside/dns/table"
)

// world derives successive versions of meshes, as an agent does.
type world struct {
	t       testing.TB
	prev    map[string]*mesh.View
	domains []string // external names with virtual addresses
}

func newWorld(t testing.TB) *world { return &world{t: t, prev: map[string]*mesh.View{}} }

// meshes derives all meshes of the documents. local lists the dataplanes on the node as mesh/name.
func (w *world) meshes(text string, local ...string) []names.Mesh {
	w.t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(text))
	if faults != nil {
		w.t.Fatal(faults)
	}
	set := resource.NewSet(rs)
	var out []names.Mesh
	for _, r := range set.Kind("Mesh") {
		v, err := mesh.Build(set, r.Name, mesh.Options{VIPs: virtualip.Options{Domains: w.domains}}, w.prev[r.Name])
		if err != nil {
			w.t.Fatal(err)
		}
		w.prev[r.Name] = v
		m := names.Mesh{View: v, Policies: policy.NewIndex(kinds.Plugins(), set, v, policy.Options{})}
		for _, l := range local {
			if in, name, _ := strings.Cut(l, "/"); in == r.Name {
				m.Local = append(m.Local, name)
			}
		}
		out = append(out, m)
	}
	return out
}

var usual = names.Options{Suffixes: []string{"mesh"}, Generators: true, Ranges: virtualip.DefaultRanges().Prefixes()}

func aMesh(name string) string { return fmt.Sprintf("---\ntype: Mesh\nname: %s\n", name) }

func dataplane(in, name, address, service, more string) string {
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: %s\nname: %s\nnetworking:\n  address: %s\n"+
		"  inbound: [{port: 80, tags: {kuma.io/service: %s}}]\n%s", in, name, address, service, more)
}

func generator(name, template string) string {
	return fmt.Sprintf("---\ntype: HostnameGenerator\nname: %s\nspec:\n  selector: {meshService: {matchLabels: {}}}\n"+
		"  template: '%s'\n", name, template)
}

func service(in, name string) string {
	return fmt.Sprintf("---\ntype: MeshService\nmesh: %s\nname: %s\nspec:\n  "+
		"selector: {dataplaneTags: {kuma.io/service: %s}}\n  ports: [{port: 80, name: web}, {port: 443}]\n", in, name, name)
}

// owners formats each name with its owner and with the services that lost it.
func owners(t *names.Table) (out []string) {
	var claims names.Claims
	for _, n := range t.Names {
		line := fmt.Sprintf("%s = %s/%s by %s", n.Name, n.Mesh, n.Service(), n.Origin)
		for _, c := range claims.Of(n) {
			line += fmt.Sprintf("; not %s/%s: %s", c.Mesh, c.Service, c.Why)
		}
		out = append(out, line)
	}
	return out
}

// TestOwners checks that a name claimed by several services has the same owner in any order of the
// resources, and that the other claims have a reason.
func TestOwners(t *testing.T) {
	docs := aMesh("a") + aMesh("b") + dataplane("a", "x", "10.0.0.1", "x", "") + dataplane("b", "x", "10.0.0.2", "x", "") +
		dataplane("a", "y.svc", "10.0.0.3", "y.svc", "") + service("b", "y") + generator("g", "{{ .DisplayName }}.svc.mesh")
	local := "mesh b has a proxy on this node, and mesh a has none"
	for _, c := range []struct {
		local []string
		want  []string
	}{
		{nil, []string{"x.mesh = a/x by tag; not b/x: mesh a takes precedence over b by its name",
			"y.svc.mesh = b/y by generator; not a/y.svc: a name by generator takes precedence over one by tag"}},
		{[]string{"b/x"},
			[]string{"x.mesh = b/x by tag; not a/x: " + local, "y.svc.mesh = b/y by generator; not a/y.svc: " + local}},
		{[]string{"a/x"}, []string{"x.mesh = a/x by tag; not b/x: mesh a has a proxy on this node, and mesh b has none",
			"y.svc.mesh = a/y.svc by tag; not b/y: mesh a has a proxy on this node, and mesh b has none"}},
	} {
		meshes := newWorld(t).meshes(docs, c.local...)
		got := owners(names.Build(usual, meshes, nil))
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("local %v (-want +got):\n%s", c.local, d)
		}
		slices.Reverse(meshes)
		if d := cmp.Diff(c.want, owners(names.Build(usual, meshes, nil))); d != "" {
			t.Errorf("local %v, in the other order (-want +got):\n%s", c.local, d)
		}
	}
	within := names.Build(usual,
		newWorld(t).meshes(aMesh("a")+service("a", "x")+service("a", "y")+generator("g", "one.mesh")), nil)
	if got := owners(within); len(got) != 1 ||
		!strings.HasPrefix(got[0], "one.mesh = a/x by generator; not a/y: the name belongs to MeshService/a/x") {
		t.Errorf("within a mesh: %q", got)
	}
}

// TestSuffixes checks which suffixes belong to the meshes.
func TestSuffixes(t *testing.T) {
	docs := aMesh("a") + service("a", "x") + generator("a", "{{ .DisplayName }}.svc.{{ .Zone }}.Mesh.Local") +
		generator("b", "{{ .DisplayName }}-db.team.example") + generator("c", "{{ .DisplayName }}.com") + generator("d",
		"{{ .DisplayName }}.svc.cluster.local") + generator("e", "one.fixed.name") + generator("f", "x-{{ .DisplayName }}") +
		generator("g", "{{ .DisplayName }}.again.mesh.local") + generator("h", "{{ .DisplayName }}.mesh")
	list := func(s []names.Suffix) (out []string) {
		for _, x := range s {
			if x.Origin != names.OriginRange {
				out = append(out, strings.TrimSpace(x.Name+" "+x.Generator.Name))
			}
		}
		return out
	}
	for _, c := range []struct {
		name           string
		o              names.Options
		owned, unowned []string
	}{
		{"usual", usual, []string{"again.mesh.local g", "mesh", "mesh.local a", "team.example b"},
			[]string{"com c", "svc.cluster.local d"}},
		{"listed", names.Options{Suffixes: []string{"mesh", "COM.", "com", "svc.cluster.local"}, Generators: true},
			[]string{"again.mesh.local g", "com", "mesh", "mesh.local a", "svc.cluster.local", "team.example b"}, nil},
		{"without generators", names.Options{Suffixes: []string{"mesh"}}, []string{"mesh"},
			[]string{"again.mesh.local g", "com c", "mesh.local a", "svc.cluster.local d", "team.example b"}},
	} {
		got := names.Build(c.o, newWorld(t).meshes(docs), nil)
		if d := cmp.Diff(c.owned, list(got.Suffixes)); d != "" {
			t.Errorf("%s, owned (-want +got):\n%s", c.name, d)
		}
		if d := cmp.Diff(c.unowned, list(got.Unowned)); d != "" {
			t.Errorf("%s, not owned (-want +got):\n%s", c.name, d)
		}
	}
	ranges := names.Build(names.Options{Ranges: []netip.Prefix{netip.MustParsePrefix("240.0.0.0/7")}},
		newWorld(t).meshes(aMesh("a")), nil).OwnedSuffixes()
	if d := cmp.Diff([]string{"240.in-addr.arpa", "241.in-addr.arpa"}, ranges); d != "" {
		t.Errorf("reverse names of a range (-want +got):\n%s", d)
	}
}

const transparent = "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001%s}\n"

// TestViews checks which names and address families the workloads of a node can resolve.
func TestViews(t *testing.T) {
	docs := aMesh("a") + dataplane("a", "all", "10.0.0.1", "s1", fmt.Sprintf(transparent, "")) +
		dataplane("a", "some", "10.0.0.2", "s2", fmt.Sprintf(transparent, ", reachableServices: [s1]")) +
		dataplane("a", "four", "10.0.0.3", "s2", fmt.Sprintf(transparent, ", ipFamilyMode: IPv4")) +
		dataplane("a", "six", "10.0.0.4", "s2", fmt.Sprintf(transparent, ", ipFamilyMode: IPv6")) +
		dataplane("a", "shared-1", "10.0.0.5", "s2",
			fmt.Sprintf(transparent, ", reachableServices: [s1], ipFamilyMode: IPv4")) + dataplane("a", "shared-2", "10.0.0.5",
		"s3", fmt.Sprintf(transparent, ", reachableServices: [s3]")) + dataplane("a", "loopback", "127.0.0.1", "s3",
		fmt.Sprintf(transparent, ", reachableServices: [s3]")) + dataplane("a", "none", "10.0.0.6", "s3", "") +
		dataplane("a", "elsewhere", "10.0.0.7", "s3", fmt.Sprintf(transparent, ", reachableServices: [s3]"))
	local := []string{"a/all", "a/some", "a/four", "a/six", "a/shared-1", "a/shared-2", "a/loopback", "a/none", "a/gone"}
	for _, only := range []bool{false, true} {
		o := usual
		o.ReachableOnly = only
		built := names.Build(o, newWorld(t).meshes(docs, local...), nil)
		answers, faults := table.New(table.Options{Suffixes: built.OwnedSuffixes()}, built.Hosts())
		if faults != nil {
			t.Fatal(faults)
		}
		sees := func(addr string) string {
			var out []string
			view := built.View(netip.MustParseAddr(addr)).DNS()
			for _, name := range []string{"s1.mesh", "s2.mesh", "s3.mesh"} {
				for _, x := range []struct {
					qtype  uint16
					family string
				}{{table.TypeA, "4"}, {table.TypeAAAA, "6"}} {
					if got, _, err := answers.Lookup(name, x.qtype, view); err == nil && got == table.OutcomeRecords {
						out = append(out, name[:2]+"/"+x.family)
					}
				}
			}
			return strings.Join(out, " ")
		}
		const everything = "s1/4 s1/6 s2/4 s2/6 s3/4 s3/6"
		want := map[string]string{"10.0.0.1": everything, "10.0.0.2": "s1/4 s1/6", "10.0.0.3": "s1/4 s2/4 s3/4",
			"10.0.0.4": "s1/6 s2/6 s3/6",
			"10.0.0.5": "s1/4 s1/6 s3/4 s3/6", "127.0.0.1": everything, "10.0.0.6": everything, "10.0.0.7": everything,
			"10.9.9.9": everything}
		if !only {
			want["10.0.0.2"], want["10.0.0.5"] = everything, everything
		}
		for addr, list := range want {
			if got := sees(addr); got != list {
				t.Errorf("reachableOnly %v: %s sees %q, want %q", only, addr, got, list)
			}
		}
		if got, _, _ := answers.Lookup(names.Canary, table.TypeA, table.NewView(nil)); got != table.OutcomeRecords {
			t.Errorf("a view hides the canary: %s", got)
		}
	}
}

// TestReuse checks that a table with unchanged input is reused.
func TestReuse(t *testing.T) {
	w := newWorld(t)
	docs := aMesh("a") + aMesh("b") +
		dataplane("a", "x", "10.0.0.1", "x", fmt.Sprintf(transparent, ", reachableServices: [x]")) + service("b", "y")
	o := usual
	o.ReachableOnly = true
	first := names.Build(o, w.meshes(docs, "a/x"), nil)
	if repeated := names.Build(o, w.meshes(docs, "a/x"), first); repeated != first {
		t.Error("the same meshes make another table")
	}
	if moved := names.Build(o, w.meshes(strings.ReplaceAll(docs, "10.0.0.1", "10.0.0.2"), "a/x"), first); moved == first ||
		moved.View(netip.MustParseAddr("10.0.0.2")) == nil {
		t.Error("a dataplane with another address has no view")
	}
	if !names.Build(o, nil, first).Pending || names.Build(o, nil, nil) == nil {
		t.Error("without a mesh nothing is pending")
	}
	empty := names.Build(o, nil, nil)
	if names.Build(o, nil, empty) != empty {
		t.Error("nothing makes another nothing")
	}
}

// TestChanges checks that an incrementally updated table equals a newly built one after random
// changes.
func TestChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		o := usual
		o.ReachableOnly = rapid.Bool().Draw(rt, "reachableOnly")
		var previous *names.Table
		var served *table.Table
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			docs, all := "", []string{}
			for _, m := range []string{"a", "b"} {
				if rapid.IntRange(0, 9).Draw(rt, "mesh") == 0 {
					continue
				}
				docs += aMesh(m)
				for i := range rapid.IntRange(0, 5).Draw(rt, "services") {
					name := fmt.Sprintf("s%d", rapid.IntRange(0, 7).Draw(rt, "service"))
					docs += dataplane(m, fmt.Sprintf("d%d", i), fmt.Sprintf("10.0.0.%d", i+1), name,
						fmt.Sprintf(transparent, ", reachableServices: [s1]"))
					if rapid.Bool().Draw(rt, "local") {
						all = append(all, fmt.Sprintf("%s/d%d", m, i))
					}
				}
				if rapid.Bool().Draw(rt, "resource") {
					docs += service(m, "s2") + service(m, "s9")
				}
			}
			if docs != "" && rapid.Bool().Draw(rt, "generator") {
				docs += generator("g",
					rapid.SampledFrom([]string{"{{ .Name }}.mesh", "{{ .Name }}.svc.mesh.local", "x.mesh"}).Draw(rt, "template"))
			}
			o.Evidence = map[string]names.Evidence{}
			for _, s := range []string{"team.net", "a.team.net"} {
				if docs != "" && rapid.Bool().Draw(rt, s) {
					docs += generator(strings.ReplaceAll(s, ".", "-"), "{{ .Name }}."+s)
				}
				o.Evidence[s] = names.Evidence(rapid.IntRange(int(names.NotAsked), int(names.HasNone)).Draw(rt, "evidence"))
			}
			meshes := w.meshes(docs, all...)
			next := names.Build(o, meshes, previous)
			if d := cmp.Diff(owners(names.Build(o, meshes, nil)), owners(next)); d != "" {
				rt.Fatalf("a table that follows another one differs (-anew +following):\n%s", d)
			}
			change := next.Since(previous)
			var faults []error
			if change.Whole {
				served, faults = next.Served(0, 0)
			} else {
				served, faults = served.With(change.Put, change.Remove)
			}
			if faults != nil {
				rt.Fatal(faults)
			}
			previous = next
			anew, _ := next.Served(0, 0)
			if anew.Len() != served.Len() {
				rt.Fatalf("%d names are served, and there are %d", served.Len(), anew.Len())
			}
			views := []*table.View{nil}
			for i := range next.Views {
				views = append(views, next.Views[i].DNS())
			}
			for _, h := range append(next.Hosts(), table.Host{Name: "x.team.net"}, table.Host{Name: "x.a.team.net"}) {
				for _, v := range views {
					for _, qtype := range []uint16{table.TypeA, table.TypeAAAA, table.TypeSRV, table.TypePTR} {
						a, _, _ := anew.Lookup(h.Name, qtype, v)
						if b, _, _ := served.Lookup(h.Name, qtype, v); a != b {
							rt.Fatalf("%s, type %d: %s is served, and made anew it is %s", h.Name, qtype, b, a)
						}
					}
				}
			}
		}
	})
}

// many returns a mesh with n tag services.
func many(n int) string {
	var b strings.Builder
	b.WriteString(aMesh("a"))
	for i := range n {
		b.WriteString(dataplane("a", fmt.Sprintf("d%d", i), "10.0.0.1", fmt.Sprintf("service-%d", i), ""))
	}
	return b.String()
}

func BenchmarkBuild(b *testing.B) {
	w := newWorld(b)
	meshes, more := w.meshes(many(10_000)), w.meshes(many(10_001))
	first := names.Build(usual, meshes, nil)
	served, _ := table.New(table.Options{Suffixes: first.OwnedSuffixes()}, first.Hosts())
	b.Run("names", func(b *testing.B) {
		for b.Loop() {
			names.Build(usual, meshes, nil)
		}
	})
	hosts := first.Hosts()
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			table.New(table.Options{Suffixes: first.OwnedSuffixes()}, hosts)
		}
	})
	b.Run("nothing", func(b *testing.B) {
		for b.Loop() {
			if names.Build(usual, meshes, first) != first {
				b.Fatal("another table")
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			names.Build(usual, more, first).Since(first)
		}
	})
	change := names.Build(usual, more, first).Since(first)
	b.Run("with", func(b *testing.B) {
		for b.Loop() {
			served.With(change.Put, change.Remove)
		}
	})
}
