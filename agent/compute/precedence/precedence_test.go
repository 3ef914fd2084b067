package precedence_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// selectors are selectors of sources with different ranks.
var selectors = []map[string]string{
	{"kuma.io/service": "*"}, {"kuma.io/service": "web"}, {"kuma.io/service": "web", "version": "v1"},
	{"kuma.io/service": "*", "version": "v1"}, {"kuma.io/service": "*", "version": "*"}, {"kuma.io/service": "api"},
}

// clients are the tags of clients.
var clients = []map[string]string{
	{"kuma.io/service": "web", "version": "v1"}, {"kuma.io/service": "web"}, {"kuma.io/service": "api", "version": "v1"},
	{"kuma.io/service": "api", "version": "v2"}, {"kuma.io/service": "db"},
}

// TestSplitSources requires that the first part that matches a client belongs to the policy whose
// source matches with the most tags, for random policies. The expected policy follows from a search
// over all sources.
func TestSplitSources(t *testing.T) {
	for seed := range 500 {
		r := rand.New(rand.NewPCG(uint64(seed), 25))
		var policies []*resource.Resource
		for i := range 1 + r.IntN(4) {
			spec := &resource.LegacyPolicy{}
			for range 1 + r.IntN(4) {
				spec.Sources = append(spec.Sources, resource.LegacySelector{Match: selectors[r.IntN(len(selectors))]})
			}
			policies = append(policies, &resource.Resource{Key: resource.Key{Name: fmt.Sprintf("p%d", i)}, Spec: spec})
		}
		parts := precedence.SplitSources(policies)
		for i := 1; i < len(parts); i++ {
			if parts[i].Policy == parts[i-1].Policy {
				t.Fatalf("seed %d: parts %d and %d of %s could stay together", seed, i-1, i, parts[i].Policy.Name)
			}
		}
		for _, client := range clients {
			if got, want := firstMatch(parts, client), mostTags(policies, client); got != want {
				t.Fatalf("seed %d: %v gets %q, want %q", seed, client, got, want)
			}
		}
	}
}

func matches(want, have map[string]string) bool {
	for k, v := range want {
		if h, ok := have[k]; !ok || v != "*" && v != h {
			return false
		}
	}
	return true
}

func firstMatch(parts []precedence.Sources, client map[string]string) string {
	for _, p := range parts {
		for _, s := range p.Selectors {
			if matches(s.Match, client) {
				return p.Policy.Name
			}
		}
	}
	return ""
}

// mostTags returns the policy with the most specific source that matches; of equal ones the first.
func mostTags(policies []*resource.Resource, client map[string]string) (name string) {
	var best [2]int
	for _, p := range policies {
		for _, s := range p.Spec.(*resource.LegacyPolicy).Sources {
			rank := [2]int{1, 0} // also above no match at all
			for _, v := range s.Match {
				if v == "*" {
					rank[1]++
				} else {
					rank[0]++
				}
			}
			if matches(s.Match, client) && slices.Compare(rank[:], best[:]) > 0 {
				name, best = p.Name, rank
			}
		}
	}
	return name
}

// TestTargets lists targetRefs in the order of the table in docs/policies.md, the weakest first.
func TestTargets(t *testing.T) {
	order := []*resource.TargetRef{
		{Kind: "Mesh"},
		{Kind: "Dataplane", Labels: map[string]string{"a": "b"}},
		{Kind: "Dataplane", Labels: map[string]string{"a": "b"}, SectionName: "main"},
		{Kind: "Dataplane", Name: "web"},
		{Kind: "Dataplane", Name: "web", SectionName: "main"},
		{Kind: "MeshSubset", Tags: map[string]string{"a": "b"}},
		{Kind: "MeshGateway", Name: "edge"},
		{Kind: "MeshService", Name: "web"},
		{Kind: "MeshService", Name: "web", SectionName: "http"},
		{Kind: "MeshExternalService", Name: "web"},
		{Kind: "MeshMultiZoneService", Name: "web"},
		{Kind: "MeshMultiZoneService", Labels: map[string]string{"a": "b"}, SectionName: "80"},
		{Kind: "MeshServiceSubset", Name: "web", Tags: map[string]string{"a": "b"}},
		{Kind: "MeshHTTPRoute", Name: "web"},
	}
	for i, a := range order {
		for j, b := range order {
			if got, want := precedence.Targets(a, b), cmp.Compare(i, j); got != want {
				t.Errorf("%s and %s compare as %d, want %d", text(a), text(b), got, want)
			}
		}
	}
	if precedence.Targets(nil, order[0]) != 0 {
		t.Error("no targetRef means the mesh")
	}
}

func text(r *resource.TargetRef) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Kind, r.Name, r.SectionName))
}
