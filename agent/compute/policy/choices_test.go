package policy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// leading sets the destinations of an index's plugins. Routes of MeshHTTPRoute list services and
// versions, such as backend=v1. The conf of Old does the same for each outbound.
func leading(x *policy.Index) *policy.Index {
	ref := func(s string) policy.BackendRef {
		service, version, _ := strings.Cut(s, "=")
		return policy.BackendRef{Kind: "MeshServiceSubset", Name: service, Tags: map[string]string{"version": version}}
	}
	x.Plugins[0].Destinations = func(p *resource.Resource) []policy.BackendRef {
		var out []policy.BackendRef
		for _, to := range p.Spec.(*resource.Policy).To {
			for _, n := range to.Conf.(*routes).Names {
				out = append(out, ref(n))
			}
		}
		return out
	}
	x.Plugins[1].Legacy[0].Destinations = func(p *resource.Resource, outbound map[string]string) []policy.BackendRef {
		var out []policy.BackendRef
		for _, n := range p.Spec.(*resource.LegacyPolicy).Conf.(*conf).List {
			r := ref(n)
			for k, v := range outbound {
				if k != resource.TagService {
					r.Tags["of-"+k] = v
				}
			}
			out = append(out, r)
		}
		return out
	}
	return x
}

// choicesOf formats the choices among the endpoints of services.
func choicesOf(c *policy.Choices, services ...string) string {
	var out []string
	for _, s := range services {
		for _, tags := range c.Of(s) {
			var pairs []string
			for _, k := range slices.Sorted(maps.Keys(tags)) {
				pairs = append(pairs, k+"="+tags[k])
			}
			out = append(out, s+"{"+strings.Join(pairs, ",")+"}")
		}
	}
	return strings.Join(out, " ")
}

func outbounds(list string) string {
	return "{type: Dataplane, name: client, networking: {address: 10.0.0.6, inbound: [{port: 80, " +
		"tags: {kuma.io/service: client}}], outbound: [" + list + "]}}\n---\n"
}

func httpRoute(name, names, more string) string {
	return fmt.Sprintf("{type: MeshHTTPRoute, name: %s, %s spec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: MeshService, name: backend}, names: [%s]}]}}\n---\n", name, more, names)
}

func oldPolicy(name, to, list string) string {
	return fmt.Sprintf("{type: Old, name: %s, sources: [{match: {kuma.io/service: '*'}}], destinations: [%s], "+
		"conf: {list: [%s]}}\n---\n", name, to, list)
}

func TestChoices(t *testing.T) {
	shadow := "labels: {kuma.io/effect: shadow},"
	for _, c := range []struct {
		name, docs string
		o          policy.Options
		want       string
	}{
		{name: "no tag besides the service", docs: outbounds("{port: 1, tags: {kuma.io/service: backend}}")},
		{name: "an outbound, twice", docs: outbounds("{port: 1, tags: {kuma.io/service: backend, version: v1, a: b}}, " +
			"{port: 2, tags: {a: b, version: v1, kuma.io/service: backend}}"),
			want: "backend{a=b,version=v1}"},
		{name: "tags that are equal only when joined", docs: outbounds("{port: 1, tags: {kuma.io/service: backend, a: b, " +
			"c: d}}, {port: 2, tags: {kuma.io/service: backend, a: bc, d: d}}"),
			want: "backend{a=b,c=d} backend{a=bc,d=d}"},
		{name: "a route, including a subset without endpoints", docs: httpRoute("r", "backend=v1, none=v2", ""),
			want: "backend{version=v1} none{version=v2}"},
		{name: "a route and an outbound", docs: httpRoute("r", "backend=v1, backend=v2", "") +
			outbounds("{port: 1, tags: {kuma.io/service: backend, version: v1}}"),
			want: "backend{version=v1} backend{version=v2}"},
		{name: "a shadow", docs: httpRoute("r", "backend=v1", shadow)},
		{name: "a shadow that acts", docs: httpRoute("r", "backend=v1", shadow), o: policy.Options{Shadow: true},
			want: "backend{version=v1}"},
		{name: "a policy that does not act", docs: httpRoute("r", "backend=v1", ""),
			o: policy.Options{
				Instead: map[resource.Key]*resource.Resource{{Kind: "MeshHTTPRoute", Mesh: "default", Name: "r"}: nil},
			}},
		{name: "a legacy policy about a service", docs: oldPolicy("o", "{match: {kuma.io/service: web}}", "backend=v1"),
			want: "backend{version=v1}"},
		{name: "it has what outbounds write", docs: oldPolicy("o", "{match: {kuma.io/service: web}}", "backend=v1") +
			outbounds("{port: 1, tags: {kuma.io/service: web, a: b}}, {port: 2, tags: {kuma.io/service: backend, c: d}}"),
			want: "backend{c=d} backend{of-a=b,version=v1} backend{version=v1} web{a=b}"},
		{name: "a legacy policy about all", docs: oldPolicy("o", "{match: {kuma.io/service: '*'}}", "backend=v1") +
			outbounds("{port: 1, tags: {kuma.io/service: none, a: b}}"),
			want: "backend{of-a=b,version=v1} backend{version=v1} none{a=b}"},
		{name: "a legacy policy about tags, which concerns no outbound",
			docs: oldPolicy("o", "{match: {kuma.io/service: web, version: v1}}", "backend=v1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := leading(indexOf(t, decode(t, dataplanes+c.docs), c.o))
			got := policy.NewChoices(x.View, x)
			if s := choicesOf(got, "backend", "none", "web"); sorted(s) != sorted(c.want) {
				t.Errorf("got %s, want %s", s, c.want)
			}
			if got.Cut != (resource.Key{}) {
				t.Errorf("cut off at %s", got.Cut)
			}
			if s, second := choicesOf(got, "backend"), choicesOf(policy.NewChoices(x.View, x), "backend"); s != second {
				t.Errorf("another order: %s, then %s", s, second)
			}
		})
	}
	if got := choicesOf(nil, "backend"); got != "" {
		t.Error(got)
	}
}

func sorted(s string) string {
	words := strings.Fields(s)
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestChoicesAreBounded checks that too many choices, and too many pairs of legacy policies and
// outbounds, are cut off, and that Cut names the position.
func TestChoicesAreBounded(t *testing.T) {
	names := make([]string, 10_001)
	for i := range names {
		names[i] = fmt.Sprintf("backend=v%d", i)
	}
	x := leading(index(t, httpRoute("a", strings.Join(names[:9_999], ", "), "")+httpRoute("b", names[9_999], "")))
	c := policy.NewChoices(x.View, x)
	if n := len(c.Of("backend")); n != 10_000 || c.Cut != (resource.Key{}) {
		t.Errorf("%d choices, cut off at %s", n, c.Cut)
	}
	x = leading(index(t,
		httpRoute("b", strings.Join(names[:9_999], ", "), "")+httpRoute("a", strings.Join(names[9_999:], ", "), "")))
	if c = policy.NewChoices(x.View, x); len(c.Of("backend")) != 10_000 || c.Cut.Name == "" {
		t.Errorf("%d choices, cut off at %s", len(c.Of("backend")), c.Cut)
	}
	var many, dps strings.Builder
	for i := range 500 {
		many.WriteString(oldPolicy(fmt.Sprintf("o%03d", i), "{match: {kuma.io/service: '*'}}", ""))
		fmt.Fprintf(&dps, "{port: %d, tags: {kuma.io/service: s%d}}, ", 1000+i, i)
	}
	x = leading(index(t, many.String()+outbounds(dps.String())))
	looked := 0
	of := x.Plugins[1].Legacy[0].Destinations
	x.Plugins[1].Legacy[0].Destinations = func(p *resource.Resource, outbound map[string]string) []policy.BackendRef {
		looked++
		return of(p, outbound)
	}
	if c = policy.NewChoices(x.View, x); looked != 200_000 || c.Cut.Kind != "Old" {
		t.Errorf("%d pairs examined, cut off at %s", looked, c.Cut)
	}
}

// BenchmarkChoices uses a mesh of 2,000 dataplanes with 20 outbounds each, half of which have
// choices.
func BenchmarkChoices(b *testing.B) {
	var docs strings.Builder
	for i := range 2_000 {
		fmt.Fprintf(&docs, "{type: Dataplane, name: d%d, networking: {address: 10.1.%d.%d, inbound: [{port: 80, "+
			"tags: {kuma.io/service: s%d}}], outbound: [", i, i/250, i%250, i%200)
		for j := range 20 {
			version := ""
			if j%2 == 0 {
				version = fmt.Sprintf(", version: v%d, zone: z", i%3)
			}
			fmt.Fprintf(&docs, "{port: %d, tags: {kuma.io/service: s%d%s}}, ", 1000+j, (i+j)%200, version)
		}
		docs.WriteString("]}}\n---\n")
	}
	docs.WriteString(oldPolicy("all", "{match: {kuma.io/service: '*'}}", "backend=v1"))
	x := leading(index(b, docs.String()))
	b.ReportAllocs()
	for b.Loop() {
		policy.NewChoices(x.View, x)
	}
}
