package meshtls

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// notes is a host that records warnings.
type notes struct {
	policy.Host
	list []string
}

func (n *notes) Warn(k resource.Key, format string, args ...any) {
	n.list = append(n.list, k.Name+": "+fmt.Sprintf(format, args...))
}

func socket(t *testing.T, ctx proto.Message) *corev3.TransportSocket {
	t.Helper()
	a, err := draft.Extension{Name: draft.NameTLS, Message: ctx}.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.TransportSocket{Name: draft.NameTLS, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}
}

func upstream(t *testing.T) *corev3.TransportSocket {
	return socket(t,
		&tlsv3.UpstreamTlsContext{Sni: "s", CommonTlsContext: &tlsv3.CommonTlsContext{AlpnProtocols: []string{"kuma"}}})
}

func downstream(t *testing.T) *corev3.TransportSocket {
	return socket(t, &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{}})
}

// paramsOf formats the params of a socket.
func paramsOf(t *testing.T, s *corev3.TransportSocket) string {
	t.Helper()
	m, err := s.GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	p := m.(interface {
		GetCommonTlsContext() *tlsv3.CommonTlsContext
	}).GetCommonTlsContext().GetTlsParams()
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%d-%d %v", p.TlsMinimumProtocolVersion, p.TlsMaximumProtocolVersion, p.CipherSuites)
}

// proxy returns a new draft with two inbounds and two outbound clusters.
func proxy(t *testing.T) *draft.Draft {
	tcp := &draft.Chain{TLS: true, Message: &listenerv3.FilterChain{TransportSocket: downstream(t)}, TCP: &tcpv3.TcpProxy{
		StatPrefix: "s", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "localhost:80"},
	}}
	http := &draft.Chain{TLS: true, Message: &listenerv3.FilterChain{TransportSocket: downstream(t)}, HTTP: &draft.HTTP{
		Message: &hcmv3.HttpConnectionManager{StatPrefix: "s"}, Filters: draft.GRPCFilters,
		Routes: &routev3.RouteConfiguration{Name: "r"},
	}}
	listener := func(i int, ch *draft.Chain) *draft.Listener {
		return &draft.Listener{Kind: draft.Inbound, Inbound: i,
			Message: &listenerv3.Listener{Name: fmt.Sprintf("inbound:%d", i)}, Chains: []*draft.Chain{ch}}
	}
	cluster := func(name string, external bool) *draft.Cluster {
		return &draft.Cluster{
			Kind: draft.OutboundCluster, Service: draft.Service{Name: name, External: external},
			Message: &clusterv3.Cluster{Name: name, TransportSocket: upstream(t)},
		}
	}
	return &draft.Draft{
		Listeners: []*draft.Listener{listener(0, tcp), listener(1, http)},
		Clusters:  []*draft.Cluster{cluster("web", false), cluster("api", true)},
	}
}

const dataplane = `{"type":"Dataplane","mesh":"default","name":"d","networking":{"address":"10.0.0.1","inbound":[{"port":80,"tags":{"kuma.io/service":"a"}},{"port":81,"name":"http","tags":{"kuma.io/service":"b"}}]}}`

// applied applies policies, given as documents, to a draft.
func applied(t *testing.T, d *draft.Draft, mtls bool, docs ...string) *notes {
	t.Helper()
	reg, err := resource.NewRegistry(append(resource.Core(), Plugin().Kinds...)...)
	if err != nil {
		t.Fatal(err)
	}
	text := dataplane + "\n---\n" + `{"type":"Mesh","name":"default"}`
	if mtls {
		text = dataplane + "\n---\n" +
			`{"type":"Mesh","name":"default","mtls":{"enabledBackend":"ca","backends":[{"name":"ca","type":"builtin"}]}}`
	}
	for _, doc := range docs {
		text += "\n---\n" + doc
	}
	res, faults := reg.Decode("", []byte(text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	set := resource.NewSet(res)
	v, err := mesh.Build(set, "default", mesh.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := set.Get(resource.Key{Kind: "Dataplane", Mesh: "default", Name: "d"})
	rules := policy.NewIndex([]policy.Plugin{Plugin()}, set, v, policy.Options{}).Rules(r)
	n := &notes{}
	c := &policy.Context{View: v, Rules: rules, Host: n, Last: true}
	apply(c.WithDataplane(r, r.Spec.(*resource.Dataplane)), d)
	return n
}

func doc(name, top, conf string) string {
	return `{"type":"MeshTLS","mesh":"default","name":"` + name + `","spec":{"targetRef":` + top +
		`,"from":[{"targetRef":{"kind":"Mesh"},"default":` + conf + `}]}}`
}

func TestParams(t *testing.T) {
	mesh, subset := `{"kind":"Mesh"}`, `{"kind":"MeshSubset"}`
	for _, c := range []struct {
		name             string
		docs             []string
		inbound, cluster string
		warnings         int
	}{
		{"mode alone", []string{doc("a", mesh, `{"mode":"Strict"}`)}, "none", "none", 0},
		{"both bounds", []string{doc("a", mesh, `{"tlsVersion":{"min":"TLS11","max":"TLS12"}}`)}, "2-3 []", "2-3 []", 0},
		{"automatic", []string{doc("a", mesh, `{"tlsVersion":{"min":"TLSAuto"}}`)}, "0-0 []", "0-4 []", 0},
		{"no bounds", []string{doc("a", mesh, `{"tlsVersion":{}}`)}, "none", "none", 0},
		{"1.3 alone", []string{doc("a", mesh, `{"tlsVersion":{"min":"TLS13"}}`)}, "4-0 []", "4-4 []", 0},
		{"ciphers alone", []string{doc("a", mesh, `{"tlsCiphers":["ECDHE-RSA-AES256-GCM-SHA384"]}`)},
			"0-0 [ECDHE-RSA-AES256-GCM-SHA384]", "0-4 [ECDHE-RSA-AES256-GCM-SHA384]", 0},
		{"merged", []string{doc("b", mesh, `{"tlsVersion":{"min":"TLS10","max":"TLS13"}}`),
			doc("a", mesh, `{"tlsVersion":{"min":"TLS12"}}`), doc("s", subset, `{"mode":"Strict"}`)}, "3-4 []", "3-4 []", 0},
		{"contradiction",
			[]string{doc("b", mesh, `{"tlsVersion":{"max":"TLS12"},"tlsCiphers":["ECDHE-RSA-AES256-GCM-SHA384"]}`),
				doc("a", mesh, `{"tlsVersion":{"min":"TLS13"}}`)},
			"0-0 [ECDHE-RSA-AES256-GCM-SHA384]", "0-4 [ECDHE-RSA-AES256-GCM-SHA384]", 2},
	} {
		d := proxy(t)
		was := proto.Clone(d.Clusters[0].Message.TransportSocket)
		held := d.Clusters[0].Message.TransportSocket
		n := applied(t, d, true, c.docs...)
		for i := range d.Listeners {
			if got := paramsOf(t, d.Listeners[i].Chains[0].Message.TransportSocket); got != c.inbound {
				t.Errorf("%s: inbound %d has %s, want %s", c.name, i, got, c.inbound)
			}
		}
		if got := paramsOf(t, d.Clusters[0].Message.TransportSocket); got != c.cluster {
			t.Errorf("%s: the cluster has %s, want %s", c.name, got, c.cluster)
		}
		if got := paramsOf(t, d.Clusters[1].Message.TransportSocket); got != "none" {
			t.Errorf("%s: the external cluster has %s", c.name, got)
		}
		if len(n.list) != c.warnings {
			t.Errorf("%s: %q", c.name, n.list)
		}
		if !proto.Equal(was, held) {
			t.Errorf("%s: a shared socket was modified", c.name)
		}
	}
	d := proxy(t)
	if n := applied(t, d, false, doc("a", mesh, `{"tlsVersion":{"min":"TLS12"}}`)); len(n.list) != 1 ||
		paramsOf(t, d.Clusters[0].Message.TransportSocket) != "none" {
		t.Errorf("without mTLS: %q", n.list)
	}
}

func TestMode(t *testing.T) {
	d := proxy(t)
	was := make([]*listenerv3.Listener, len(d.Listeners))
	for i, l := range d.Listeners {
		was[i] = whole(t, l)
	}
	applied(t, d, true, doc("a", `{"kind":"Dataplane","name":"d","sectionName":"http"}`, `{"mode":"Permissive"}`))
	if !proto.Equal(whole(t, d.Listeners[0]), was[0]) {
		t.Errorf("an inbound without a policy was modified: %v", whole(t, d.Listeners[0]))
	}
	open := whole(t, d.Listeners[1])
	if len(open.FilterChains) != 3 || len(open.ListenerFilters) != 1 || open.ListenerFilters[0].Name != nameInspector {
		t.Fatal(prototext.Format(open))
	}
	for i, want := range []struct {
		transport string
		alpn, tls bool
	}{{"raw_buffer", false, false}, {"tls", false, false}, {"tls", true, true}} {
		ch, m := open.FilterChains[i], open.FilterChains[i].FilterChainMatch
		if m.TransportProtocol != want.transport || (len(m.ApplicationProtocols) == 1) != want.alpn ||
			(ch.TransportSocket != nil) != want.tls || d.Listeners[1].Chains[i].TLS != want.tls {
			t.Errorf("chain %d: %v", i, ch)
		}
		if !proto.Equal(unpacked(t, ch.Filters[0]), unpacked(t, was[1].FilterChains[0].Filters[0])) {
			t.Errorf("chain %d has other filters: %v", i, ch.Filters)
		}
	}
	if m := open.FilterChains[2].FilterChainMatch; m.ApplicationProtocols[0] != "kuma" {
		t.Error(m)
	}
	chains := d.Listeners[1].Chains
	applied(t, d, true, doc("a", `{"kind":"Mesh"}`, `{"mode":"Permissive"}`))
	if len(d.Listeners[0].Chains) != 3 || len(d.Listeners[1].Chains) != 3 || d.Listeners[1].Chains[0] != chains[0] {
		t.Error("a permissive inbound was modified")
	}
	applied(t, d, true, doc("a", `{"kind":"Mesh"}`, `{"mode":"Strict"}`))
	for i, l := range d.Listeners {
		if !proto.Equal(whole(t, l), was[i]) {
			t.Errorf("after returning to strict: %v\nwant %v", whole(t, l), was[i])
		}
	}
	plain := &draft.Listener{Kind: draft.Inbound, Message: &listenerv3.Listener{}, Chains: []*draft.Chain{{}}}
	if err := setMode(plain, strict, false); err != nil || len(plain.Chains) != 1 {
		t.Errorf("an inbound without mTLS was modified: %v", err)
	}
}

func whole(t *testing.T, l *draft.Listener) *listenerv3.Listener {
	t.Helper()
	m, err := l.Whole()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func unpacked(t *testing.T, f *listenerv3.Filter) proto.Message {
	t.Helper()
	m, err := f.GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}
