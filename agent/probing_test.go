package agent_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestProbes checks that an inbound is excluded while the probe of its workload fails. Probes are
// in the Dataplane and in the annotations of the Envoy, and run only while the Envoy is connected.
func TestProbes(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	agenttest.Do(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 500 Internal Server Error\r\n\r\n"))
			_ = c.Close()
		}
	}()
	text := func(name string, workload int, probe string) string {
		return fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, networking: {address: 127.0.0.1, inbound: ["+
			"{port: 80, servicePort: %d, tags: {kuma.io/service: s}, serviceProbe: {interval: 100ms%s}}, "+
			"{port: 81, servicePort: %d, tags: {kuma.io/service: t}}]}}\n---\n", name, workload, probe, workload)
	}
	state := func(name string) string {
		rec, ok := r.Store().Snapshot().Get(resource.Key{Kind: resource.KindEndpointState, Mesh: "default", Name: name})
		if !ok {
			return "ready"
		}
		s, _ := rec.Spec.(*resource.EndpointState)
		return fmt.Sprint(s.State, " ", s.Inbounds)
	}
	changed, stop := r.Store().Watch()
	defer stop()
	await := func(what, name, want string) {
		t.Helper()
		agenttest.Await(t, what+": "+name+" is "+want, changed, func() bool { return state(name) == want })
	}
	_, err = r.Api().Apply(t.Context(), []byte(agenttest.Meshes("default")+"\n---\n"+text("tcp", port, "")+
		text("http", port, ", http: {path: /x}")+text("annotated", port, "")+text("away", 1, "")), false)
	agenttest.Do(t, err)
	for _, name := range []string{"tcp", "http", "annotated"} {
		n := &core.Node{Id: "default." + name, UserAgentName: "envoy",
			UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: "1.36.2"}}
		if name == "annotated" {
			n.Metadata, err = structpb.NewStruct(map[string]any{"annotations": map[string]any{
				resource.AnnotationHTTPProbes: "81/ready"}})
			agenttest.Do(t, err)
		}
		s := r.Ask(n, nil)
		agenttest.Next(t, s, map[string]string{})
		// Inbounds that are not acknowledged are unready too.
		agenttest.Do(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: draft.TypeListener,
			ResourceNamesSubscribe: []string{"*"}}))
		agenttest.Next(t, s, map[string]string{})
	}
	await("the workload responds with 500", "http", "unready [80]")
	await("the workload responds with 500", "annotated", "unready [81]")
	await("the workload accepts connections", "tcp", "ready")
	await("no Envoy is connected", "away", "ready")
	_, err = r.Api().Apply(t.Context(), []byte(strings.TrimSuffix(text("http", port, ""), "---\n")), false)
	agenttest.Do(t, err)
	await("an edited probe", "http", "ready")
	agenttest.Do(t, l.Close())
	await("no workload", "tcp", "unready [80]")
	await("no workload", "annotated", "unready [80 81]")
	agenttest.Do(t, r.Stop())
}
