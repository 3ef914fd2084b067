package explain_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const services = `
---
{type: Dataplane, name: backend, networking: {address: 192.0.2.2, inbound: [{port: 80, tags: {kuma.io/service: backend}}]}}
---
{type: Dataplane, name: redis, networking: {address: 192.0.2.3, inbound: [{port: 80, tags: {kuma.io/service: redis}}]}}
`

// randomPolicies returns policies that overlap in each field.
func randomPolicies(r *rand.Rand) []string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	conf := func() string {
		var fields []string
		for _, f := range []string{
			fmt.Sprintf("a: %d", r.IntN(3)), "b: " + pick("x", "y"), fmt.Sprintf("deep: {c: %d}", r.IntN(2)),
			fmt.Sprintf("deep: {d: %d}", r.IntN(2)), "last: [" + pick("x", "y") + "]", "joint: [" + pick("x", "y", "x, z") + "]",
			fmt.Sprintf("keyed: [{key: %s, x: %d}]", pick("k1", "k2"), r.IntN(2)),
			fmt.Sprintf("keyed: [{key: %s, y: %d}]", pick("k1", "k2"), r.IntN(2)),
			"tags: {" + pick("t/1", "t2") + ": " + pick("v", "w") + "}", "free: " + pick("[1]", "{m: 1}", "{n: 2}", "text"),
		} {
			name, _, _ := strings.Cut(f, ":")
			if r.IntN(4) == 0 && !slices.ContainsFunc(fields, func(o string) bool { return strings.HasPrefix(o, name+":") }) {
				fields = append(fields, f)
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	var out []string
	for i := range 2 + r.IntN(4) {
		top := pick("{kind: Mesh}", "{kind: MeshService, name: web}",
			"{kind: Dataplane, name: web}", "{kind: MeshSubset, tags: {version: v2}}")
		var to, from []string
		for range 1 + r.IntN(2) {
			to = append(to, fmt.Sprintf("{targetRef: %s, default: %s}",
				pick("{kind: Mesh}", "{kind: MeshService, name: backend}", "{kind: MeshService, name: redis}"), conf()))
			from = append(from, fmt.Sprintf("{targetRef: %s, default: %s}",
				pick("{kind: Mesh}", "{kind: MeshService, name: redis}", "{kind: MeshSubset, tags: {team: x}}"), conf()))
		}
		out = append(out, fmt.Sprintf("\n---\n{type: Tune, name: t%d, spec: {targetRef: %s, to: [%s], from: [%s]}}",
			i, top, strings.Join(to, ", "), strings.Join(from, ", ")))
		out = append(out, fmt.Sprintf("\n---\n{type: Whole, name: w%d, spec: {targetRef: %s, default: %s}}", i, top, conf()))
	}
	return out
}

// says returns the merged confs for the proxy, for each destination, and for each client.
func says(t *testing.T, p *explain.Proxy) map[string]string {
	t.Helper()
	out := map[string]string{}
	note := func(at string, r *policy.Rule) {
		if r == nil || r.Conf == nil {
			return
		}
		b, err := json.Marshal(r.Conf)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != "{}" {
			out[at] = string(b)
		}
	}
	if k := p.Rules().Kind("Whole"); k != nil {
		note("proxy", k.Proxy)
	}
	k := p.Rules().Kind("Tune")
	for _, s := range p.Index().View.Services() {
		note("to "+s.ID.Name, k.ServiceRule(s))
	}
	if k == nil {
		return out
	}
	for _, service := range []string{"web", "redis"} {
		for _, team := range []string{"x", "y"} {
			client := policy.Subset{{Key: resource.TagService, Value: service}, {Key: "team", Value: team}}
			for _, in := range k.From {
				for _, r := range in.Rules {
					if r.Subset.Holds(client) {
						note(fmt.Sprintf("from %s %s", service, team), r)
						break
					}
				}
			}
		}
	}
	return out
}

// TestEffectIsTrue checks explanations against results: removing a policy without effect changes
// nothing, removing a policy whose fields have no other source changes something, and each field
// comes from a policy that sets it.
func TestEffectIsTrue(t *testing.T) {
	none, some := 0, 0
	for seed := range uint64(150) {
		docs := randomPolicies(rand.New(rand.NewPCG(seed, 1)))
		whole := web + services + strings.Join(docs, "")
		set := decode(t, whole)
		p := proxy(t, set, "web")
		before := says(t, p)
		for i := range docs {
			kind, name := "Tune", fmt.Sprintf("t%d", i/2)
			if i%2 == 1 {
				kind, name = "Whole", fmt.Sprintf("w%d", i/2)
			}
			r := set.Get(resource.Key{Kind: kind, Mesh: "default", Name: name})
			x := p.Policy(r)
			without := slices.DeleteFunc(set.All(), func(o *resource.Resource) bool { return o == r })
			after := says(t, proxy(t, resource.NewSet(without), "web"))
			same := fmt.Sprint(before) == fmt.Sprint(after)
			switch x.Effect {
			case explain.EffectNone:
				none++
				if !same {
					t.Fatalf("seed %d: %s has no effect, and without it %v becomes %v\n%s", seed, x.Policy, before, after, whole)
				}
			default:
				if !x.Selected || len(x.Items) == 0 {
					t.Fatalf("seed %d: %s: an effect without an item: %+v", seed, x.Policy, x)
				}
				if !same {
					some++
				}
			}
		}
		sourcesAreTrue(t, seed, p)
	}
	if none < 50 || some < 50 {
		t.Errorf("%d policies without and %d with an effect: the sample is too small", none, some)
	}
}

func sourcesAreTrue(t *testing.T, seed uint64, p *explain.Proxy) {
	t.Helper()
	k := p.Rules().Kind("Tune")
	if k == nil {
		return
	}
	for _, r := range k.To {
		conf, err := json.Marshal(r.Conf)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Fields(r, explain.To) {
			if len(f.By) == 0 {
				t.Fatalf("seed %d: nothing sets %s of %s", seed, f.Path, conf)
			}
			for _, s := range slices.Concat(f.By, overridden(f)) {
				var i int
				if _, err := fmt.Sscanf(s.Field, "spec.to[%d].default", &i); err != nil {
					t.Fatalf("seed %d: source %+v", seed, s)
				}
				if !slices.ContainsFunc(r.Origins, func(o policy.Origin) bool { return o.Policy.Name == s.Name && o.Item == i }) {
					t.Fatalf("seed %d: %s comes from %+v, which is not in the rule", seed, f.Path, s)
				}
			}
		}
	}
}

func overridden(f explain.Field) []explain.Source {
	var out []explain.Source
	for _, o := range f.Over {
		out = append(out, o.Source)
	}
	return out
}
