package agent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestShadowGoesLive stores shadow policies while a proxy is connected, which must receive nothing.
// Then one write removes the shadow label. The proxy must receive exactly the bytes that the diff
// announced, in one response per type.
func TestShadowGoesLive(t *testing.T) {
	a := agenttest.RunAgent(t)
	const web = "---\ntype: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 10.9.0.1\n  inbound:\n" +
		"  - {port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}\n" +
		"  outbound:\n  - {port: 20001, tags: {kuma.io/service: svc-1}}\n  - {port: 20002, tags: {kuma.io/service: svc-2}}\n"
	agenttest.Apply(t, a, "type: Mesh\nname: default\n"+endpoint(1, 0, "10.0.0.1")+endpoint(2, 0, "10.0.0.2")+web+
		"---\n{type: Timeout, mesh: default, name: old, sources: [{match: {kuma.io/service: '*'}}], "+
		"destinations: [{match: {kuma.io/service: '*'}}], conf: {connectTimeout: 7s}}\n")

	names := make(chan string, 100)
	c := newDeltaClient(t.Context(), t, a.Addrs().XDS, "default.web", func(r *discoveryv3.Resource) {
		kind := r.Resource.GetTypeUrl()
		names <- kind[strings.LastIndexByte(kind, '.')+1:] + " " + r.Name
	})
	done := make(chan struct{})
	go func() { defer close(done); c.run() }()
	t.Cleanup(func() { <-done })
	take := func(n int) []string {
		var got []string
		for range n {
			got = append(got, <-names)
		}
		slices.Sort(got)
		return got
	}
	take(8) // three clusters, two load assignments, three listeners

	policies := func(label string) string {
		return fmt.Sprintf("{type: MeshTimeout, mesh: default, name: new, %[1]sspec: {to: [{targetRef: {kind: Mesh}, "+
			"default: {connectionTimeout: 9s}}]}}\n---\n{type: MeshCircuitBreaker, mesh: default, name: new, %[1]sspec: "+
			"{to: [{targetRef: {kind: MeshService, name: svc-2}, default: {connectionLimits: {maxConnections: 7}}}]}}", label)
	}
	before := c.sent.Load()
	agenttest.Apply(t, a, policies("labels: {kuma.io/effect: shadow}, "))
	agenttest.Apply(t, a, endpoint(1, 0, "10.0.0.11")) // the next response must contain this change
	if got := take(1); got[0] != "ClusterLoadAssignment svc-1" || c.sent.Load() != before+1 {
		t.Fatalf("after shadow policies: %q, %d responses", got, c.sent.Load()-before)
	}

	api := client.New(a.Addrs().API, 0)
	d, err := api.Diff(t.Context(), client.DiffQuestion{Shadow: true})
	if err != nil || len(d.Proxies) != 1 || d.Scope != "connected" {
		t.Fatalf("%+v, %v", d, err)
	}
	var announced []string
	types := map[string]bool{}
	for _, it := range d.Proxies[0].Config.Items {
		types[it.Type] = true
		announced = append(announced, it.Type[strings.LastIndexByte(it.Type, '.')+1:]+" "+it.Name)
	}
	if len(types) != 3 || len(announced) < 4 {
		t.Fatalf("announced are %q", announced)
	}
	config := func(shadow bool) string {
		c, err := api.Config(t.Context(), "default", "web", render.ConfigOptions{Shadow: shadow})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(c.XDS)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	shadow := config(true)

	before = c.sent.Load()
	agenttest.Apply(t, a, policies(""))
	// A changed cluster waits for its endpoints (Envoy: cluster warming), so they are sent again
	// unchanged. This client does not subscribe to routes.
	announced = slices.DeleteFunc(announced, func(name string) bool {
		return strings.HasPrefix(name, "RouteConfiguration ")
	})
	want := slices.Concat(announced, []string{"ClusterLoadAssignment svc-1", "ClusterLoadAssignment svc-2"})
	slices.Sort(want)
	if diff := cmp.Diff(want, take(len(want))); diff != "" {
		t.Errorf("sent is not what was announced: %s", diff)
	}
	agenttest.Apply(t, a, endpoint(2, 0, "10.0.0.12"))
	if got := take(1); got[0] != "ClusterLoadAssignment svc-2" {
		t.Errorf("more was sent: %q", got)
	}
	if got := c.sent.Load() - before; got != 4 {
		t.Errorf("%d responses, want one each of clusters, endpoints and listeners, and that for the endpoint", got)
	}
	live := strings.ReplaceAll(config(false), "10.0.0.12", "10.0.0.2")
	if live != shadow {
		t.Errorf("the config is not the one that was shown: %s", cmp.Diff(shadow, live))
	}
	if d, err = api.Diff(t.Context(), client.DiffQuestion{Shadow: true}); err != nil || d.Changed {
		t.Errorf("afterwards: %+v, %v", d, err)
	}
}
