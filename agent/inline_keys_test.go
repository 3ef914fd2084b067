package agent_test

import (
	"bytes"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// keyedPatches add a cluster with an inline key, one with a password in a filter, and one without.
const keyedPatches = `
---
type: MeshProxyPatch
mesh: default
name: keyed
spec:
  targetRef: {kind: Mesh}
  default:
    appendModifications:
    - cluster:
        operation: Add
        value: |
          name: keyed
          connectTimeout: 1s
          type: STATIC
          transportSocket:
            name: envoy.transport_sockets.tls
            typedConfig:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
              commonTlsContext:
                tlsCertificates:
                - {certificateChain: {filename: /tmp/cert}, privateKey: {inlineString: the-private-key}}
    - cluster:
        operation: Add
        value: "{name: open, connectTimeout: 1s, type: STATIC}"
`

// TestInlineKeysStayOnTheNode checks that a resource with an inline key is not sent over a
// connection without encryption, that the status names it, and that a client of the Unix socket
// gets it.
func TestInlineKeysStayOnTheNode(t *testing.T) {
	r := agenttest.Up(t, agenttest.ShortDir(t), agent.Deps{}, "xds.tcp=127.0.0.1:0", "xds.insecure=true")
	agenttest.ByAPI(t, r.Store(), "type: Mesh\nname: default\n---\n"+
		agenttest.PortedText("default", "web", "10.0.0.1")+
		keyedPatches)
	// clusters receives clusters until the cluster "open" is among them, and reports whether the key
	// is, too. The connection stays open.
	clusters := func(conn *grpc.ClientConn) (keyed bool) {
		t.Helper()
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		agenttest.Do(t, err, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &core.Node{Id: "default.web"},
			TypeUrl: draft.TypeCluster}))
		for {
			got, err := s.Recv()
			agenttest.Do(t, err)
			open := false
			for _, x := range got.Resources {
				keyed = keyed || bytes.Contains(x.Resource.Value, []byte("the-private-key"))
				open = open || x.Name == "open"
			}
			if open {
				return keyed
			}
		}
	}
	unix := func() *grpc.ClientConn { return agenttest.Dial(t, r.Addrs().XDS) }
	plain := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(r.Addrs().XDSTCP.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		agenttest.Do(t, err)
		return conn
	}
	conn := plain()
	if clusters(conn) {
		t.Error("the key is sent over TCP without encryption")
	}
	s, err := r.Api().Status(t.Context())
	agenttest.Do(t, err)
	const want = `Cluster "keyed" is not sent: it has a key or a password at ` +
		"/transportSocket/typedConfig/commonTlsContext/tlsCertificates/0/privateKey/inlineString"
	found := false
	for _, p := range s.Problems {
		found = found || p.Resource == "Dataplane/default/web" && strings.HasPrefix(p.Reason, want)
	}
	if !found {
		t.Errorf("the status has %v", s.Problems)
	}
	agenttest.Do(t, conn.Close())
	agenttest.Gone(t, r, "default.web")
	conn = unix()
	if !clusters(conn) {
		t.Error("the key is not sent over the unix socket")
	}
	agenttest.Do(t, conn.Close())
	agenttest.Gone(t, r, "default.web")
	conn = plain()
	if clusters(conn) {
		t.Error("the key is sent over TCP after a connection of the unix socket")
	}
	agenttest.Do(t, conn.Close())
}
