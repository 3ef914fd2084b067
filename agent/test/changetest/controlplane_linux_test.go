package changetest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// controlPlane serves the configs that a control plane has served for examples/from-kuma, with the
// addresses and the secrets of a test.
type controlPlane struct {
	t       testing.TB
	port    int
	ads     *adsServer
	proxies []*kumaProxy
	ca      *authority
	unready map[string]bool
}

// kumaProxy is a Dataplane of the control plane.
type kumaProxy struct {
	service, name, address      string
	inbound, workload, outbound int // ports; backends have no outbound
}

// listenerStats returns the prefix of the statistics of the inbound listener.
func (p *kumaProxy) listenerStats() string {
	return fmt.Sprintf("^listener.%s_%d.", p.address, p.inbound)
}

func newControlPlane(t testing.TB) *controlPlane {
	t.Helper()
	cp := &controlPlane{t: t, unready: map[string]bool{}, ca: newAuthority(t)}
	cp.ads, cp.port = newADS(t)
	for i, name := range []string{"web-1", "web-2", "backend-1", "backend-2"} {
		service, _, _ := strings.Cut(name, "-")
		p := &kumaProxy{service: service, name: name, address: fmt.Sprintf("127.0.0.%d", 11+i),
			inbound:  agenttest.FreePort(t),
			workload: serveName(t, name)}
		if service == "web" {
			p.outbound = agenttest.FreePort(t)
		}
		cp.proxies = append(cp.proxies, p)
	}
	cp.publish()
	return cp
}

// serveName responds with a name to requests.
func serveName(t testing.TB, name string) (port int) {
	l, port := listen(t, "127.0.0.1")
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	})}
	go s.Serve(l) //nolint:errcheck // returns when the test closes the server
	t.Cleanup(func() { s.Close() })
	return port
}

func (cp *controlPlane) proxy(name string) *kumaProxy {
	for _, p := range cp.proxies {
		if p.name == name {
			return p
		}
	}
	panic(name)
}

// setReady sets the state of the inbound of a Dataplane.
func (cp *controlPlane) setReady(name string, ready bool) {
	cp.unready[name] = !ready
	cp.publish()
}

// publish serves the configs of all proxies.
func (cp *controlPlane) publish() {
	cp.t.Helper()
	nodes := map[string]configs{}
	for _, p := range cp.proxies {
		nodes["shop."+p.name] = cp.config(p)
	}
	cp.ads.set(nodes)
}

// recordedAddress is an address in a recorded config.
var recordedAddress = regexp.MustCompile(`"address": "([0-9.]+)",\s*"portValue": (\d+)`)

// config returns the recorded config with the addresses and the secrets of a proxy. Servers have
// the same config as clients, without an outbound, and with the permission of the export.
func (cp *controlPlane) config(p *kumaProxy) configs {
	cp.t.Helper()
	data, err := os.ReadFile("../../../examples/from-kuma/served/web-1.json")
	agenttest.Do(cp.t, err)
	text := recordedAddress.ReplaceAllStringFunc(string(data), func(s string) string {
		m := recordedAddress.FindStringSubmatch(s)
		switch a := m[1] + ":" + m[2]; a {
		case "10.0.0.1:80":
			return fmt.Sprintf(`"address": %q, "portValue": %d`, p.address, p.inbound)
		case "10.0.0.1:8080":
			return fmt.Sprintf(`"address": "127.0.0.1", "portValue": %d`, p.workload)
		case "127.0.0.1:1001":
			return fmt.Sprintf(`"address": "127.0.0.1", "portValue": %d`, p.outbound)
		default: // a backend: see below
			return s
		}
	})
	if p.service == "backend" {
		text = strings.ReplaceAll(text, `"rules": {}`, `"rules": {"policies": {"MeshTrafficPermission": {"permissions": `+
			`[{"any": true}], "principals": [{"authenticated": {"principalName": {"exact": "spiffe://shop/web"}}}]}}}`)
	}
	var served struct {
		XDS map[string]map[string]json.RawMessage `json:"xds"`
	}
	agenttest.Do(cp.t, json.Unmarshal([]byte(text), &served))
	out := configs{}
	for kind, resources := range served.XDS {
		out[kind] = map[string]*anypb.Any{}
		for name, raw := range resources {
			if p.outbound == 0 && (name == "backend" || strings.HasPrefix(name, "outbound:")) {
				continue
			}
			var fields map[string]any
			agenttest.Do(cp.t, json.Unmarshal(raw, &fields))
			fields["@type"] = kind
			raw, err := json.Marshal(fields)
			var a anypb.Any
			agenttest.Do(cp.t, err, protojson.Unmarshal(raw, &a))
			r, err := a.UnmarshalNew()
			agenttest.Do(cp.t, err)
			switch r := r.(type) {
			case *endpoint.ClusterLoadAssignment:
				cp.setEndpoints(r.Endpoints[0])
			case *tls.Secret:
				cp.ca.fill(r, p)
			}
			sealed := &anypb.Any{}
			agenttest.Do(cp.t, anypb.MarshalFrom(sealed, r, proto.MarshalOptions{Deterministic: true}))
			out[kind][name] = sealed
		}
	}
	return out
}

// setEndpoints sets the endpoints of the backends that are ready.
func (cp *controlPlane) setEndpoints(l *endpoint.LocalityLbEndpoints) {
	recorded := l.LbEndpoints[0]
	l.LbEndpoints = nil
	for _, p := range cp.proxies {
		if p.service == "backend" && !cp.unready[p.name] {
			e := proto.CloneOf(recorded)
			a := e.GetEndpoint().Address.GetSocketAddress()
			a.Address, a.PortSpecifier = p.address, &core.SocketAddress_PortValue{PortValue: uint32(p.inbound)}
			l.LbEndpoints = append(l.LbEndpoints, e)
		}
	}
}

// bootstrap returns the bootstrap of kuma-dp in its main parts.
func (cp *controlPlane) bootstrap(name, admin string) []byte {
	return fmt.Appendf(nil, `node: {id: shop.%s, cluster: %s}
admin: {address: {pipe: {path: %s}}}
dynamic_resources:
  lds_config: {ads: {}, resource_api_version: V3}
  cds_config: {ads: {}, resource_api_version: V3}
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services: [{envoy_grpc: {cluster_name: ads_cluster}}]
static_resources:
  clusters:
  - name: ads_cluster
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: ads_cluster
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}]}]
`, name, cp.proxy(name).service, admin, cp.port)
}

// export returns examples/from-kuma/export.yaml with the Dataplanes and the secrets of the test.
func (cp *controlPlane) export() string {
	cp.t.Helper()
	data, err := os.ReadFile("../../../examples/from-kuma/export.yaml")
	agenttest.Do(cp.t, err)
	secrets := strings.NewReplacer("dGhlIGNlcnRpZmljYXRlCg==", base64.StdEncoding.EncodeToString(cp.ca.certPEM),
		"dGhlIGtleQo=", base64.StdEncoding.EncodeToString(cp.ca.keyPEM))
	var out []string
	for doc := range strings.SplitSeq(secrets.Replace(string(data)), "---\n") {
		if !strings.Contains(doc, "type: Dataplane\n") {
			out = append(out, doc)
			continue
		}
		for _, p := range cp.proxies {
			if strings.Contains(doc, "\nname: "+p.service+"-1\n") {
				out = append(out, strings.NewReplacer("name: "+p.service+"-1\n", "name: "+p.name+"\n",
					"address: 10.0.0.1\n", "address: "+p.address+"\n", "address: 10.0.0.2\n", "address: "+p.address+"\n",
					"port: 80\n", fmt.Sprintf("port: %d\n    serviceAddress: 127.0.0.1\n", p.inbound),
					"servicePort: 8080\n", fmt.Sprintf("servicePort: %d\n", p.workload),
					"port: 1001\n", fmt.Sprintf("port: %d\n", p.outbound)).Replace(doc))
			}
		}
	}
	return strings.Join(out, "---\n")
}
