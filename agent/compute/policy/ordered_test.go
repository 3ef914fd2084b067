package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"pgregory.net/rapid"
)

// TestDisjoint checks that no two rules hold the same client, and that the rule of a client equals
// the merge of the items that select it.
func TestDisjoint(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		values := []string{"", "a", "b"}
		var items []string
		var subsets []map[string]string
		for i := range rapid.IntRange(1, 7).Draw(r, "items") {
			tags := map[string]string{}
			var text []string
			for _, k := range []string{"k1", "k2", "k3"} {
				if v := rapid.SampledFrom(values).Draw(r, k); v != "" {
					tags[k] = v
					text = append(text, k+": "+v)
				}
			}
			ref := "{kind: Mesh}"
			if len(text) > 0 {
				ref = "{kind: MeshSubset, tags: {" + strings.Join(text, ", ") + "}}"
			}
			subsets = append(subsets, tags)
			items = append(items, fmt.Sprintf("{targetRef: %s, default: {add: [i%d]}}", ref, i))
		}
		x := index(t, mesht("p", "{kind: Mesh}", "from: ["+strings.Join(items, ", ")+"]"))
		in := rulesOf(t, x, "web", "MeshT").Inbound(0)
		rules := in.Rules
		for _, v1 := range append(values, "c") {
			for _, v2 := range values {
				for _, v3 := range values {
					client := map[string]string{"k1": v1, "k2": v2, "k3": v3}
					var want []string
					for i, tags := range subsets {
						in := true
						for k, v := range tags {
							in = in && client[k] == v
						}
						if in {
							want = append(want, fmt.Sprintf("i%d", i))
						}
					}
					var got []string
					n := 0
					for _, rule := range rules {
						if holds(rule, client) {
							n++
							got = rule.Conf.(*conf).Add
						}
					}
					// The other form contains an identical rule that holds the client.
					same := len(want) == 0
					for _, rule := range in.Ordered() {
						if holds(rule, client) {
							same = same || strings.Join(rule.Conf.(*conf).Add, " ") == strings.Join(want, " ")
						}
					}
					if !same {
						r.Fatalf("client %v: %v is not among the ordered rules\n%s", client, want, show(in.Ordered()))
					}
					if n > 1 || strings.Join(got, " ") != strings.Join(want, " ") {
						r.Fatalf("client %v: %d rules, got %v, want %v\n%s", client, n, got, want, show(rules))
					}
				}
			}
		}
	})
}

// holds reports whether a rule selects a client.
func holds(r *policy.Rule, client map[string]string) bool {
	for _, tag := range r.Subset {
		if (client[tag.Key] == tag.Value) == tag.Not {
			return false
		}
	}
	return true
}

// TestOrdered checks the form of the rules in Kuma: items that never select the same client are not
// combined.
func TestOrdered(t *testing.T) {
	x := index(t, mesht("p", "{kind: Mesh}", `from: [
  {targetRef: {kind: Mesh}, default: {a: all}},
  {targetRef: {kind: MeshService, name: backend}, default: {a: backend}},
  {targetRef: {kind: MeshServiceSubset, name: web, tags: {version: v1}}, default: {a: web}}]`))
	want := `{service=web,version=v1} {"a":"web"} p[0] p[2]
{service=backend} {"a":"backend"} p[0] p[1]
{service=web,version!=v1} {"a":"all"} p[0]
{service!=web,version=v1} {"a":"all"} p[0]
{service!=backend} {"a":"all"} p[0]
{service!=web,version!=v1} {"a":"all"} p[0]`
	rules := rulesOf(t, x, "web", "MeshT").Inbound(0).Ordered()
	if diff := cmp.Diff(want, show(rules)); diff != "" {
		t.Error(diff)
	}
	if !rules[0].Subset.Overlaps(rules[4].Subset) || rules[0].Subset.Overlaps(rules[1].Subset) ||
		rules[1].Subset.Overlaps(rules[4].Subset) {
		t.Error("Overlaps is wrong")
	}
}

// everything formats all rules of all proxies.
func everything(t testing.TB, x *policy.Index) string {
	var b strings.Builder
	for _, d := range x.View.Dataplanes() {
		k := x.Rules(d).Kind("MeshT")
		if k == nil {
			continue
		}
		fmt.Fprintf(&b, "%s %x\n%s\n", d.Name, x.Match(d).Fingerprint, show(k.To))
		for _, r := range k.ToResources {
			fmt.Fprintf(&b, "%s %s\n", r.Resource, showRule(&r.Rule))
		}
		for _, in := range k.From {
			fmt.Fprintf(&b, "%d\n%s\n", in.Inbound, show(in.Rules))
		}
		fmt.Fprintln(&b, k.Warnings)
	}
	return b.String()
}

// TestManyAboutEverything merges policies for all services with policies for one service at every
// position between them.
func TestManyAboutEverything(t *testing.T) {
	var doc strings.Builder
	for i := range 9 {
		fmt.Fprintf(&doc, "%s", mesht(fmt.Sprintf("p%d-all", i), "{kind: Mesh}",
			fmt.Sprintf("to: [{targetRef: {kind: Mesh}, default: {a: all%d, add: [all%d]}}]", i, i)))
		fmt.Fprintf(&doc, "%s", mesht(fmt.Sprintf("p%d-own", i), "{kind: Mesh}",
			fmt.Sprintf("to: [{targetRef: {kind: MeshService, name: s%d}, default: {a: own%d, add: [own%d]}}, "+
				"{targetRef: {kind: MeshService, name: twice}, default: {add: [twice%d]}}]", i, i, i, i)))
	}
	k := rulesOf(t, index(t, doc.String()), "web", "MeshT")
	for i := range 9 {
		var want, twice []string
		for j := 8; j >= 0; j-- { // alphabetically first names take precedence
			if twice = append(twice, fmt.Sprintf("twice%d", j)); j == i {
				want = append(want, fmt.Sprintf("own%d", i))
			}
			want, twice = append(want, fmt.Sprintf("all%d", j)), append(twice, fmt.Sprintf("all%d", j))
		}
		got := k.Outbound(draft.Service{Name: fmt.Sprintf("s%d", i)})
		if diff := cmp.Diff(want, got.Conf.(*conf).Add); diff != "" || len(got.Origins) != 10 ||
			got.Conf.(*conf).A != "all0" {
			t.Errorf("s%d: %s %s", i, showRule(got), diff)
		}
		if diff := cmp.Diff(twice, k.Outbound(draft.Service{Name: "twice"}).Conf.(*conf).Add); diff != "" {
			t.Error(diff)
		}
	}
}

// BenchmarkRules merges n policies for all services and n for one service each.
func BenchmarkRules(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var doc strings.Builder
			for i := range n {
				doc.WriteString(mesht(fmt.Sprintf("a%d", i), "{kind: Mesh}",
					fmt.Sprintf("to: [{targetRef: {kind: Mesh}, default: {a: x%d}}]", i)))
				doc.WriteString(mesht(fmt.Sprintf("b%d", i), "{kind: Mesh}",
					fmt.Sprintf("to: [{targetRef: {kind: MeshService, name: s%d}, default: {b: x%d}}]", i, i)))
			}
			x := index(b, doc.String())
			web := x.View.Dataplane("web")
			b.ReportAllocs()
			for b.Loop() {
				x.Rules(web)
			}
		})
	}
}
