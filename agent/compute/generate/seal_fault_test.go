package generate_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestFieldRuleIsHeldBack checks that clusters and listeners with values that break rules of
// Envoy's API stay in the config, and that the check blocks them, so that clients keep their
// previous versions. If generation dropped them, clients would remove them.
func TestFieldRuleIsHeldBack(t *testing.T) {
	rs := []*resource.Resource{
		{Key: resource.Key{Kind: "Mesh", Name: "default"}, Spec: &resource.Mesh{}},
		dataplane("web", "10.0.0.1", resource.Inbound{Port: 80, Tags: map[string]string{"kuma.io/service": "web"}},
			[]resource.Outbound{{Port: 1000, Tags: map[string]string{"kuma.io/service": "backend"}}}),
		dataplane("backend", "10.0.1.1", resource.Inbound{Port: 80, Tags: map[string]string{"kuma.io/service": "backend"}},
			nil),
	}
	plugin := policy.Plugin{Apply: func(_ *policy.Context, d *draft.Draft) {
		for _, c := range d.Clusters {
			if c.Kind == draft.OutboundCluster {
				c.Message.ConnectTimeout = durationpb.New(0)
			}
		}
		for _, l := range d.Listeners {
			for _, c := range l.Chains {
				if l.Kind == draft.Inbound && c.TCP != nil {
					c.TCP.StatPrefix = ""
				}
			}
		}
	}}
	m, err := generate.NewMesh(resource.NewSet(rs), "default", mesh.Options{}, []policy.Plugin{plugin},
		policy.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, generate.NewMemo())
	if err != nil {
		t.Fatal(err)
	}
	refused := map[draft.ResourceID]string{}
	for _, r := range generate.Withheld(p.Check(&check.Checker{}, nil)) {
		refused[r.ID] = r.Reason
	}
	for id, want := range map[draft.ResourceID]string{
		{TypeURL: draft.TypeCluster, Name: "backend"}:              "/connectTimeout: value must be greater than 0s",
		{TypeURL: draft.TypeListener, Name: "inbound:10.0.0.1:80"}: "statPrefix: value length must be at least 1 runes",
	} {
		if p.Resource(id) == nil {
			t.Errorf("%v is not in the config", id)
		}
		if !strings.Contains(refused[id], want) {
			t.Errorf("%v is refused with %q, want %q", id, refused[id], want)
		}
	}
	if len(p.Warnings) != 2 || !strings.HasSuffix(p.Warnings[0].Reason, "Envoy would refuse it") {
		t.Errorf("warnings: %+v", p.Warnings)
	}
}
