package generate_test

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// TestProxiesAskForRealAddresses checks that clusters with the host of an ExternalService ask for
// its real addresses where the node has a resolver, and only there: those of the service, of a
// policy for the same host, and of an egress. The server name and the name of the endpoint stay.
func TestProxiesAskForRealAddresses(t *testing.T) {
	const docs = `{type: Mesh, name: default, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}EGRESS}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 192.168.0.1, transparentProxying: {redirectPortInbound:
  15006, redirectPortOutbound: 15001}, inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]}}
---
{type: ExternalService, mesh: default, name: pay, tags: {kuma.io/service: pay, kuma.io/protocol: http},
  networking: {address: "Pay.example.com:443", tls: {enabled: true}}}
---
{type: ExternalService, mesh: default, name: ip, tags: {kuma.io/service: ip}, networking: {address: "192.0.2.1:443"}}
---
{type: ExternalService, mesh: default, name: off, tags: {kuma.io/service: off}, networking: {address: "off.example.com:443",
  disableHostDNSEntry: true}}
---
{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: Mesh},
  default: {action: Allow}}]}}
---
{type: MeshPassthrough, mesh: default, name: p, spec: {targetRef: {kind: Mesh}, default: {passthroughMode: Matched,
  appendMatch: [{type: Domain, value: pay.example.com, port: 8443, protocol: tls},
  {type: Domain, value: www.example.com, port: 8443, protocol: tls}]}}}
---
{type: ZoneEgress, name: out, networking: {address: 192.168.0.9, port: 10002}}
`
	const asked = "pay.example.coM (Pay.example.com, SNI Pay.example.com)"
	for _, tc := range []struct {
		egress   string
		resolver bool
		want     map[string]string // by cluster
	}{
		{"", true, map[string]string{"pay": asked, "ip": "192.0.2.1 (, SNI )", "off": "off.example.com (, SNI )",
			"meshpassthrough_tls_pay.example.com_8443": "pay.example.coM (pay.example.com, SNI )",
			"meshpassthrough_tls_www.example.com_8443": "www.example.com (, SNI )"}},
		{"", false, map[string]string{"pay": "Pay.example.com (, SNI Pay.example.com)",
			"meshpassthrough_tls_pay.example.com_8443": "pay.example.com (, SNI )"}},
		{", routing: {zoneEgress: true}", true, map[string]string{"default:pay": asked}},
		{", routing: {zoneEgress: true}", false, map[string]string{"default:pay": "Pay.example.com (, SNI Pay.example.com)"}},
	} {
		rs, faults := kinds.Registry().Decode("test", []byte(strings.Replace(docs, "EGRESS", tc.egress, 1)))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		set := resource.NewSet(rs)
		m, err := generate.NewMesh(set, "default", mesh.Options{Resolver: tc.resolver}, kinds.Plugins(),
			policy.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var p *generate.Proxy
		if tc.egress == "" {
			p, err = generate.Generate(generate.Input{Mesh: m, Name: "web", Flavor: node.FlavorEnvoy}, nil, nil)
		} else {
			p, err = generate.GenerateZone(generate.ZoneInput{Resource: set.Kind("ZoneEgress")[0], Zone: mesh.DefaultZone,
				Meshes: []*generate.Mesh{m}, Flavor: node.FlavorEnvoy}, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range tc.want {
			r := p.Resource(draft.ResourceID{TypeURL: draft.TypeCluster, Name: name})
			var c clusterv3.Cluster
			if r == nil || proto.Unmarshal(r.Body(), &c) != nil {
				t.Errorf("%v: no cluster %s", tc.resolver, name)
				continue
			}
			e := c.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint()
			var tls tlsv3.UpstreamTlsContext
			for _, s := range c.GetTransportSocketMatches() {
				if err := s.GetTransportSocket().GetTypedConfig().UnmarshalTo(&tls); err != nil {
					t.Fatal(err)
				}
			}
			got := fmt.Sprintf("%s (%s, SNI %s)", e.GetAddress().GetSocketAddress().GetAddress(), e.GetHostname(), tls.GetSni())
			if got != want {
				t.Errorf("%v, %q: cluster %s asks for %s, want %s", tc.resolver, tc.egress, name, got, want)
			}
		}
	}
}
