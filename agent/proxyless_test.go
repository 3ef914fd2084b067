package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

func remove(t testing.TB, a *agent.Agent, k resource.Key) {
	t.Helper()
	if _, err := a.Store().Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
		Ops: []store.Op{{Delete: k}}}); err != nil {
		t.Fatal(err)
	}
}

// healthServer starts an instance of a gRPC service and returns its address.
func healthServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

func instance(name, address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("---\ntype: Dataplane\nmesh: default\nname: %s\nnetworking:\n  address: %s\n  inbound:\n"+
		"  - port: %s\n    tags: {kuma.io/service: greeter, kuma.io/protocol: grpc}\n", name, host, port)
}

const caller = "---\ntype: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 127.0.0.1\n  inbound:\n" +
	"  - {port: 80, tags: {kuma.io/service: web}}\n  outbound:\n  - {port: 20001, tags: {kuma.io/service: greeter}}\n"

// TestGRPCClient runs the xDS client of grpc-go against the agent's socket. The client must resolve
// and call a service, follow added and removed endpoints, reject an unusable update, and accept the
// next valid one.
func TestGRPCClient(t *testing.T) {
	a := agenttest.RunAgent(t)
	one, two := healthServer(t), healthServer(t)
	agenttest.Apply(t, a, "type: Mesh\nname: default\n"+instance("greeter-1", one)+caller)

	bootstrap, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      "unix://" + a.Addrs().XDS,
			"channel_creds":   []any{map[string]any{"type": "insecure"}},
			"server_features": []string{"xds_v3"},
		}},
		"node": map[string]any{"id": "default.web"},
	})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///greeter", grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
	defer cancel()

	// answers makes rounds of calls until exactly these instances respond in one round.
	answers := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		for {
			got := map[string]bool{}
			for range 4 * len(want) {
				var p peer.Peer
				_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Peer(&p),
					grpc.WaitForReady(true))
				if ctx.Err() != nil {
					t.Fatalf("waiting for %v: %v; the last round was answered by %v", want, ctx.Err(), got)
				}
				if err == nil {
					got[p.Addr.String()] = true
				}
			}
			if slices.Equal(slices.Sorted(maps.Keys(got)), want) {
				return
			}
		}
	}
	answers(one)
	agenttest.Apply(t, a, instance("greeter-2", two))
	answers(one, two)
	remove(t, a, resource.Key{Kind: "Dataplane", Mesh: "default", Name: "greeter-1"})
	answers(two)

	// The client rejects endpoints with a duplicate address, retains its previous endpoints, and
	// reports the reason.
	agenttest.Apply(t, a, instance("greeter-3", two)+instance("greeter-1", one))
	nack := func() string {
		for _, p := range a.Proxies() {
			for _, ty := range p.Types {
				if ty.NACK != nil {
					return ty.NACK.Reason
				}
			}
		}
		return ""
	}
	for nack() == "" {
		answers(two)
	}
	if !strings.Contains(nack(), "duplicate") {
		t.Errorf("the status holds the reason %q, want one about the duplicate address", nack())
	}
	remove(t, a, resource.Key{Kind: "Dataplane", Mesh: "default", Name: "greeter-3"})
	answers(one, two)
	for nack() != "" { // the client uses an update before the agent receives its acknowledgement
		answers(one, two)
	}
}
