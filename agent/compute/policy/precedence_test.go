package policy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// precedenceMesh has one proxy, in a namespace, and one service resource with two ports.
const precedenceMesh = `
{type: Mesh, name: default, meshServices: {mode: Everywhere}}
---
type: Dataplane
name: web.ns
labels: {team: front, k8s.kuma.io/namespace: ns}
networking:
  address: 10.0.0.1
  inbound: [{port: 80, name: main, tags: {kuma.io/service: web, version: v1}}]
---
type: MeshService
name: redis
labels: {app: redis}
spec: {selector: {dataplaneTags: {kuma.io/service: redis}}, ports: [{port: 80, name: a}, {port: 81, name: b}]}
---
`

// modelItem is an item of a policy, as the model of precedence sees it: text fields to compare, and
// the destinations and clients to which it applies.
type modelItem struct {
	value                    string // of the conf
	top, topName, topSection int
	origin, role             int
	to, toSection            int
	display, name            string
	index                    int
	port80, port81, client   bool
	tag                      bool // whether it applies to the tag service
}

// weaker is the order of Kuma's sort functions, as one list of fields from the most significant to
// the least. withTo includes the item's own targetRef, which counts only for destinations that are
// resources.
func (a *modelItem) weaker(b *modelItem, withTo bool) int {
	fields := []int{a.top - b.top, a.topName - b.topName, a.topSection - b.topSection, a.origin - b.origin,
		a.role - b.role}
	if withTo {
		fields = append(fields, a.to-b.to, a.toSection-b.toSection)
	}
	fields = append(fields, strings.Compare(b.display, a.display), strings.Compare(b.name, a.name), a.index-b.index)
	for _, f := range fields {
		if f != 0 {
			return f
		}
	}
	return 0
}

// values returns the confs of the items that apply, the weakest first.
func values(items []modelItem, applies func(*modelItem) bool, withTo bool) []string {
	var list []modelItem
	for i := range items {
		if applies(&items[i]) {
			list = append(list, items[i])
		}
	}
	slices.SortFunc(list, func(a, b modelItem) int { return a.weaker(&b, withTo) })
	var out []string
	for _, it := range list {
		out = append(out, it.value)
	}
	return out
}

// choice is one form of a part of a policy, with its rank in the model.
type choice struct {
	yaml string
	rank [3]int
}

var (
	topChoices = []choice{
		{"{kind: Mesh}", [3]int{1}},
		{"{kind: Dataplane}", [3]int{2}},
		{"{kind: Dataplane, labels: {team: front}}", [3]int{2}},
		{"{kind: Dataplane, labels: {team: front}, sectionName: main}", [3]int{2, 0, 1}},
		{"{kind: Dataplane, name: web, namespace: ns}", [3]int{2, 1}},
		{"{kind: Dataplane, name: web, namespace: ns, sectionName: main}", [3]int{2, 1, 1}},
		{"{kind: MeshSubset, tags: {version: v1}}", [3]int{3}},
		{"{kind: MeshService, name: web}", [3]int{5}},
		{"{kind: MeshServiceSubset, name: web, tags: {version: v1}}", [3]int{8}},
	}
	labelChoices = []choice{
		{"", [3]int{1, 0}},
		{"kuma.io/origin: global", [3]int{0, 0}},
		{"kuma.io/origin: zone, kuma.io/policy-role: system", [3]int{1, 0}},
		{"kuma.io/policy-role: producer", [3]int{1, 1}},
		{"kuma.io/origin: global, kuma.io/policy-role: producer", [3]int{0, 1}},
		{"kuma.io/policy-role: consumer, k8s.kuma.io/namespace: ns", [3]int{1, 2}},
		{"kuma.io/policy-role: workload-owner, k8s.kuma.io/namespace: ns", [3]int{1, 3}},
	}
	toChoices = []choice{
		{"{kind: Mesh}", [3]int{1}},
		{"{kind: MeshService, labels: {app: redis}}", [3]int{5}},
		{"{kind: MeshService, labels: {app: redis}, sectionName: a}", [3]int{5, 1, 80}},
		{"{kind: MeshService, labels: {app: redis}, sectionName: '80'}", [3]int{5, 1, 80}},
		{"{kind: MeshService, labels: {app: redis}, sectionName: b}", [3]int{5, 1, 81}},
	}
)

// randomPolicies returns policies of the kind MeshT as documents, and their items in the model.
func randomPolicies(r *rand.Rand, value func() string) (docs string, to, from []modelItem) {
	for n := range 2 + r.IntN(5) {
		top, labels := topChoices[r.IntN(len(topChoices))], labelChoices[r.IntN(len(labelChoices))]
		base := modelItem{top: top.rank[0], topName: top.rank[1], topSection: top.rank[2],
			origin: labels.rank[0], role: labels.rank[1], name: fmt.Sprintf("p%d", n)}
		base.display = []string{"x", "y", base.name}[r.IntN(3)]
		var items, clients []string
		for i := range 1 + r.IntN(3) {
			c := toChoices[r.IntN(len(toChoices))]
			it := base
			it.value, it.index, it.to, it.toSection = value(), i, c.rank[0], c.rank[1]
			it.port80, it.port81 = c.rank[2] != 81, c.rank[2] != 80
			it.tag = c.rank[0] == 1
			to = append(to, it)
			items = append(items, fmt.Sprintf("{targetRef: %s, default: {a: %s, add: [%[2]s]}}", c.yaml, it.value))

			it = base
			it.value, it.index, it.client = value(), i, true
			client := "{kind: Mesh}"
			if n := r.IntN(3); n > 0 {
				client = "{kind: MeshService, name: " + []string{"client", "other"}[n-1] + "}"
			}
			it.client = !strings.Contains(client, "other")
			from = append(from, it)
			clients = append(clients, fmt.Sprintf("{targetRef: %s, default: {a: %s, add: [%[2]s]}}", client, it.value))
		}
		docs += fmt.Sprintf("{type: MeshT, name: %s, labels: {kuma.io/display-name: %s, %s}, spec: {targetRef: %s, "+
			"to: [%s], from: [%s]}}\n---\n", base.name, base.display, labels.yaml, top.yaml, strings.Join(items, ", "),
			strings.Join(clients, ", "))
	}
	return docs, to, from
}

// confOrder returns the values of the items in a rule, in merge order, and requires that the last
// one takes precedence.
func confOrder(t *testing.T, r *policy.Rule) []string {
	t.Helper()
	if r == nil {
		return nil
	}
	b, err := json.Marshal(r.Conf)
	var c conf
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || len(c.Add) == 0 || c.Add[len(c.Add)-1] != c.A {
		t.Fatalf("%s: the last item must take precedence: %v", b, err)
	}
	return c.Add
}

// TestPrecedence compares the rules of random policies with a model of Kuma's order, for
// destinations by resource, destinations by tag, and clients.
func TestPrecedence(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 60
	}
	decided := map[string]int{}
	for seed := range rounds {
		n := 0
		value := func() string {
			n++
			return fmt.Sprintf("v%d", n)
		}
		docs, to, from := randomPolicies(rand.New(rand.NewPCG(uint64(seed), 25)), value)
		x := indexOf(t, decode(t, precedenceMesh+docs), policy.Options{})
		k := rulesOf(t, x, "web.ns", "MeshT")
		check := func(what string, want []string, r *policy.Rule) {
			if got := confOrder(t, r); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s (-want +got):\n%s\nof\n%s", seed, what, cmp.Diff(want, got), docs)
			}
			if len(want) > 1 {
				decided[what]++
			}
		}
		services := map[uint32]*mesh.Service{}
		for _, s := range x.View.Services() {
			if s.Resource.Name == "redis" {
				services[s.Port] = s
			}
		}
		check("port 80", values(to, func(it *modelItem) bool { return it.port80 }, true), k.ServiceRule(services[80]))
		check("port 81", values(to, func(it *modelItem) bool { return it.port81 }, true), k.ServiceRule(services[81]))
		var all *policy.Rule
		for _, r := range k.To {
			if len(r.Subset) == 0 {
				all = r
			}
		}
		check("tag service", values(to, func(it *modelItem) bool { return it.tag }, false), all)
		var client *policy.Rule
		for _, r := range k.Inbound(0).Rules {
			if r.Subset.Holds(policy.SubsetOf(map[string]string{resource.TagService: "client"})) {
				client = r
				break
			}
		}
		check("client", values(from, func(it *modelItem) bool { return it.client }, false), client)
	}
	for _, what := range []string{"port 80", "port 81", "tag service", "client"} {
		if decided[what] < rounds/4 {
			t.Errorf("only %d of %d rounds compare several items for %s: %v", decided[what], rounds, what,
				slices.Sorted(maps.Keys(decided)))
		}
	}
}

// TestSectionOfDestination requires that an item for a port of a service takes precedence over one
// for the service, in one policy and in two.
func TestSectionOfDestination(t *testing.T) {
	const (
		port    = "{targetRef: {kind: MeshService, name: redis, sectionName: '80'}, default: {a: port}}"
		service = "{targetRef: {kind: MeshService, name: redis}, default: {a: service}}"
	)
	one := mesht("x", "{kind: Mesh}", "to: ["+port+", "+service+"]")
	two := mesht("z", "{kind: Mesh}", "to: ["+port+"]") + mesht("a", "{kind: Mesh}", "to: ["+service+"]")
	for name, docs := range map[string]string{"one policy": one, "two policies": two} {
		x := indexOf(t, decode(t, precedenceMesh+docs), policy.Options{})
		k := rulesOf(t, x, "web.ns", "MeshT")
		for _, s := range x.View.Services() {
			want := map[uint32]string{80: "port", 81: "service"}[s.Port]
			if s.Resource.Name != "redis" {
				continue
			}
			if got := k.ServiceRule(s).Conf.(*conf).A; got != want {
				t.Errorf("%s: port %d has the conf of the %s, want that of the %s", name, s.Port, got, want)
			}
		}
	}
}
