package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestOnlyWhatChangedIsSent changes an endpoint that one of two proxies uses, then a resource that
// neither uses, then an endpoint that both use. Each proxy must receive each of its changes once,
// and nothing else.
func TestOnlyWhatChangedIsSent(t *testing.T) {
	a := agenttest.RunAgent(t)
	proxy := func(n int, services ...string) string {
		var out strings.Builder
		for i, s := range services {
			fmt.Fprintf(&out, "  - {port: %d, tags: {kuma.io/service: %s}}\n", 20000+i, s)
		}
		return fmt.Sprintf("---\ntype: Dataplane\nmesh: default\nname: web-%d\nnetworking:\n  address: 10.9.0.%d\n"+
			"  inbound:\n  - {port: 80, tags: {kuma.io/service: web}}\n  outbound:\n%s", n, n+1, out.String())
	}
	agenttest.Apply(t, a, "type: Mesh\nname: default\n"+endpoint(1, 0, "10.0.0.1")+endpoint(2, 0, "10.0.0.2")+
		proxy(0, "svc-1", "svc-2")+proxy(1, "svc-2"))

	names := make(chan string, 100)
	var clients []*deltaClient
	for k := range 2 {
		c := newDeltaClient(t.Context(), t, a.Addrs().XDS, fmt.Sprintf("default.web-%d", k), func(r *discoveryv3.Resource) {
			kind := r.Resource.GetTypeUrl()
			names <- fmt.Sprintf("web-%d %s %s", k, kind[strings.LastIndexByte(kind, '.')+1:], r.Name)
		})
		clients = append(clients, c)
		done := make(chan struct{})
		go func() { defer close(done); c.run() }()
		t.Cleanup(func() { <-done })
	}
	expect := func(what string, want ...string) {
		t.Helper()
		var got []string
		for range want {
			got = append(got, <-names)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	expect("at the start",
		"web-0 Cluster localhost:80", "web-0 Cluster svc-1", "web-0 Cluster svc-2",
		"web-0 ClusterLoadAssignment svc-1", "web-0 ClusterLoadAssignment svc-2",
		"web-0 Listener inbound:10.9.0.1:80", "web-0 Listener outbound:127.0.0.1:20000",
		"web-0 Listener outbound:127.0.0.1:20001",
		"web-1 Cluster localhost:80", "web-1 Cluster svc-2", "web-1 ClusterLoadAssignment svc-2",
		"web-1 Listener inbound:10.9.0.2:80", "web-1 Listener outbound:127.0.0.1:20000")
	before := [2]int64{clients[0].sent.Load(), clients[1].sent.Load()}

	agenttest.Apply(t, a, endpoint(1, 0, "10.0.0.11"))
	expect("an endpoint of svc-1", "web-0 ClusterLoadAssignment svc-1")
	agenttest.Apply(t, a, endpoint(3, 0, "10.0.0.3")) // no proxy has an outbound to svc-3
	agenttest.Apply(t, a, "type: MeshTimeout\nmesh: default\nname: later\nspec:\n  targetRef: {kind: MeshService, "+
		"name: svc-3}\n  to:\n  - targetRef: {kind: Mesh}\n    default: {connectionTimeout: 2s}\n")
	agenttest.Apply(t, a, endpoint(2, 0, "10.0.0.12"))
	expect("an endpoint of svc-2, after changes that concern nobody", "web-0 ClusterLoadAssignment svc-2",
		"web-1 ClusterLoadAssignment svc-2")

	// Empty responses would increase these counters.
	for k, want := range []int64{2, 1} {
		if got := clients[k].sent.Load() - before[k]; got != want {
			t.Errorf("web-%d was sent %d responses, want %d", k, got, want)
		}
	}
}
