package ads_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcxds "google.golang.org/grpc/xds"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

var routerConfig = &routerv3.Router{}

// collected returns the client-side resources of the inputs in the repository and of the reference
// cases, if these are available.
func collected(t *testing.T) *clientSide {
	t.Helper()
	inputs := kindtest.OwnInputs(t)
	if files, err := kindtest.ConformanceFiles(); err == nil && len(files) > 0 {
		inputs = append(inputs, kindtest.ConformanceInputs(t)...)
	} else {
		t.Logf("without the reference cases (%s), which are not beside this repository", kindtest.ConformanceCases)
	}
	s := &clientSide{}
	for _, in := range inputs {
		if strings.Contains(in.Name, "proxypatch") {
			continue // they contain the subject of the case
		}
		in.Proxies(t, node.FlavorEnvoy, func(p *generate.Proxy) { s.collect(t, p) })
	}
	for _, what := range slices.Sorted(maps.Keys(s.rules)) {
		t.Logf("%5d × %s", s.rules[what], what)
	}
	t.Logf("%d clusters, %d endpoint lists, %d route configurations with their managers",
		len(s.clusters), len(s.endpoints), len(s.routes))
	if len(s.clusters) < 120 || len(s.endpoints) < 100 || len(s.routes) < 60 {
		t.Fatal("there are too few of them to say anything")
	}
	return s
}

// TestGRPCTakesAll serves every client-side resource of the inputs to the xDS client of grpc-go and
// expects no rejection: all clusters and endpoints on one stream, and each route configuration on a
// separate one.
func TestGRPCTakesAll(t *testing.T) {
	if testing.Short() {
		t.Skip("what clients take is asked without the race detector: nothing of it depends on what runs beside")
	}
	s := collected(t)
	configs := map[string]*draft.Sealed{}
	l, r := s.all(t)
	configs[allClusters] = sealedOf(t,
		slices.Concat(messages(s.clusters), messages(s.endpoints), messages(list(l)), messages(list(r)))...)
	for i, m := range s.managers {
		name := fmt.Sprintf(listenerOf, i)
		configs[name] = sealedOf(t, s.listener(t, name, m), s.routes[i])
	}
	a := servingEach(t, configs)
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(configs)), 32) {
		var conns []*grpc.ClientConn
		for _, name := range batch {
			conns = append(conns, a.resolve(t, name))
		}
		for i, name := range batch {
			a.taken(t, name, configs[name])
			conns[i].Close()
		}
	}
	if !t.Failed() {
		t.Logf("grpc-go %s took %d configs", grpc.Version, len(configs))
	}
}

// TestGRPCRefusals checks that TestGRPCTakesAll can detect a resource that gRPC rejects.
func TestGRPCRefusals(t *testing.T) {
	if testing.Short() {
		t.Skip("what clients take is asked without the race detector: nothing of it depends on what runs beside")
	}
	s := collected(t)
	m, r := s.managers[0], s.routes[0]
	r.VirtualHosts[0].Routes[0].Match = nil
	cfg := sealedOf(t, s.listener(t, "bad", m), r)
	a := servingEach(t, map[string]*draft.Sealed{"bad": cfg})
	conn := a.resolve(t, "bad")
	defer conn.Close()
	a.until(t, func() bool { return a.nack("default.bad") != "" })
	if why := a.nack("default.bad"); !strings.Contains(why, "doesn't have a match") {
		t.Errorf("it is rejected with %q", why)
	}
}

func list[T any](v ...T) []T { return v }

// servingEach starts an agent that serves the config NAME to the node default.NAME.
func servingEach(t *testing.T, configs map[string]*draft.Sealed) *agent {
	t.Helper()
	var a *agent
	a = startAgent(t, options{Handler: onOpen(func(s access.Stream) error {
		name := strings.TrimPrefix(s.Key.ID, "default.")
		a.Publish(map[node.Key]rollout.Config{s.Key: {Sealed: configs[name], Revision: 1, LastStream: everyStream}})
		return nil
	})})
	a.Ready()
	return a
}

// resolve makes an xDS client of grpc-go request a listener and all that it refers to. The client
// connects to no endpoint.
func (a *agent) resolve(t *testing.T, name string) *grpc.ClientConn {
	t.Helper()
	builder, err := grpcxds.NewXDSResolverWithConfigForTesting(a.bootstrap(t, "default."+name))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(context.Context,
			string) (net.Conn, error) {
			return nil, errors.New("nothing is dialled here")
		}))
	if err != nil {
		t.Fatal(err)
	}
	conn.Connect()
	return conn
}

func (a *agent) bootstrap(t *testing.T, node string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"xds_servers": list(map[string]any{
			"server_uri": "unix://" + a.path, "channel_creds": list(map[string]any{"type": "insecure"}),
			"server_features": list("xds_v3"),
		}),
		"node": map[string]any{"id": node},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// until waits for a condition, which it checks after every change.
func (a *agent) until(t *testing.T, cond func() bool) {
	t.Helper()
	changed, stop := a.Watch()
	defer stop()
	late := time.After(patience)
	for !cond() {
		select {
		case <-changed:
		case <-late:
			t.Fatal("the condition did not come true")
		}
	}
}

// nack returns the reason of a rejection by a node, or "".
func (a *agent) nack(id string) string {
	for _, p := range a.Status() {
		for _, ts := range p.Types {
			if p.NodeID == id && ts.NACK != nil {
				return shortType(ts.TypeURL) + ": " + ts.NACK.Reason
			}
		}
	}
	return ""
}

// taken waits until a node has acknowledged every resource of its config or rejected one.
func (a *agent) taken(t *testing.T, name string, cfg *draft.Sealed) {
	t.Helper()
	id, why := "default."+name, ""
	a.until(t, func() bool {
		if why = a.nack(id); why != "" {
			return true
		}
		acked := map[string]int{}
		for _, p := range a.Status() {
			for _, ts := range p.Types {
				if p.NodeID == id && ts.AckedVersion != "" && ts.AckedVersion == ts.SentVersion {
					acked[ts.TypeURL] = ts.Resources
				}
			}
		}
		for rank, list := range cfg.Resources {
			if acked[draft.Types[rank]] < len(list) {
				return false
			}
		}
		return true
	})
	if why != "" {
		t.Errorf("%s is rejected: %s", name, why)
	}
}
