package draft_test

import (
	"bytes"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// outbound returns a listener like those of the generator, with everything that a draft stores
// separately or shares.
func outbound(t *testing.T) *draft.Listener {
	t.Helper()
	headers,
		err := draft.NewHeaders(&corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: "x-kuma-tags", Value: "&a=b&"}})
	if err != nil {
		t.Fatal(err)
	}
	return &draft.Listener{
		Kind: draft.Outbound, Tags: map[string]string{"kuma.io/service": "web", "version": "1"},
		Message: &listenerv3.Listener{Name: "outbound"},
		Chains: []*draft.Chain{
			{Message: &listenerv3.FilterChain{Name: "http"}, HTTP: &draft.HTTP{
				Message: &hcmv3.HttpConnectionManager{StatPrefix: "web", InternalAddressConfig: draft.InternalAddresses},
				Filters: draft.GRPCFilters, Headers: headers,
				Routes: &routev3.RouteConfiguration{Name: "r",
					VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}}}},
			}},
			{TCP: &tcpv3.TcpProxy{StatPrefix: "t", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "c"}},
				Network: []draft.Extension{{Name: "own", Packed: pack(t, durationpb.New(5))}}},
		},
	}
}

func body(t *testing.T, d *draft.Draft, typeURL string) []byte {
	t.Helper()
	s, faults := draft.Seal(d, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return s.Resources[draft.Rank(typeURL)][0].Body()
}

// TestWholeBorrows checks that Whole does not change the draft of a listener or cluster: it seals
// to the same bytes as before.
func TestWholeBorrows(t *testing.T) {
	want := body(t, &draft.Draft{Listeners: []*draft.Listener{outbound(t)}}, draft.TypeListener)
	l := outbound(t)
	for range 2 {
		m, err := l.Whole()
		if err != nil {
			t.Fatal(err)
		}
		m.Name = "changed"
		m.FilterChains[0].Name = "changed"
		if _, err := l.Chains[0].HTTP.Whole(); err != nil {
			t.Fatal(err)
		}
	}
	if got := body(t, &draft.Draft{Listeners: []*draft.Listener{l}}, draft.TypeListener); !bytes.Equal(got, want) {
		t.Errorf("the listener seals to other bytes after Whole:\n%q\n%q", got, want)
	}

	for name, make := range map[string]func() *draft.Cluster{
		"shared options": func() *draft.Cluster {
			c := cluster("c")
			c.Message.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
			c.Message.EdsClusterConfig = draft.EDS
			return c
		},
		"own options": func() *draft.Cluster {
			c := cluster("c")
			c.EditHTTP().CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(1)}
			return c
		},
	} {
		want := body(t, &draft.Draft{Clusters: []*draft.Cluster{make()}}, draft.TypeCluster)
		c := make()
		m, err := c.Whole()
		if err != nil {
			t.Fatal(err)
		}
		m.TypedExtensionProtocolOptions = nil
		if got := body(t, &draft.Draft{Clusters: []*draft.Cluster{c}}, draft.TypeCluster); !bytes.Equal(got, want) {
			t.Errorf("%s: the cluster seals to other bytes after Whole", name)
		}
	}
}

// TestSetWhole checks that SetWhole loses nothing of the message that Whole returned, including all
// forms that a patch can add.
func TestSetWhole(t *testing.T) {
	l := outbound(t)
	m, err := l.Whole()
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Metadata.FilterMetadata["io.kuma.tags"].Fields["version"].GetStringValue(); got != "1" {
		t.Errorf("the tags are not in the metadata: %v", m.Metadata)
	}
	hcm := func(f func(*hcmv3.HttpConnectionManager)) *anypb.Any {
		x := &hcmv3.HttpConnectionManager{StatPrefix: "x"}
		f(x)
		return pack(t, x)
	}
	filter := func(name string, a *anypb.Any) *listenerv3.Filter {
		return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: a}}
	}
	discovery := &corev3.ExtensionConfigSource{ConfigSource: draft.ADS, TypeUrls: []string{"x"}}
	rds := hcm(func(x *hcmv3.HttpConnectionManager) {
		x.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: draft.ADS, RouteConfigName: "r"}}
		x.HttpFilters = []*hcmv3.HttpFilter{
			{Name: "a", Disabled: true, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(t, durationpb.New(1))}},
			{Name: "b", IsOptional: true, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: discovery}},
			{Name: "c"},
		}
	})
	empty := hcm(func(x *hcmv3.HttpConnectionManager) {
		x.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}}
	})
	tcp := pack(t, &tcpv3.TcpProxy{StatPrefix: "t", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "c"}})
	m.FilterChains = append(m.FilterChains,
		&listenerv3.FilterChain{Name: "rds", Filters: []*listenerv3.Filter{filter(draft.NameHCM, rds)}},
		&listenerv3.FilterChain{Name: "manager first",
			Filters: []*listenerv3.Filter{filter(draft.NameHCM, empty), filter(draft.NameTCPProxy, tcp)}},
		&listenerv3.FilterChain{Name: "proxy first",
			Filters: []*listenerv3.Filter{filter(draft.NameTCPProxy, tcp), filter(draft.NameHCM, empty)}},
		&listenerv3.FilterChain{Name: "other names", Filters: []*listenerv3.Filter{filter("mine", empty)}},
		&listenerv3.FilterChain{Name: "other types", Filters: []*listenerv3.Filter{filter(draft.NameHCM, tcp)}},
		&listenerv3.FilterChain{Name: "discovered", Filters: []*listenerv3.Filter{
			{Name: "d", ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: discovery}}, {Name: "nothing"},
		}},
		&listenerv3.FilterChain{Name: "no filters"},
	)
	want := proto.Clone(m)
	if err := l.SetWhole(m); err != nil {
		t.Fatal(err)
	}
	if h := l.Chains[2].HTTP; h == nil || len(h.Filters) != 3 || h.Routes != nil || l.Chains[0].HTTP.Routes == nil ||
		l.Chains[1].TCP == nil {
		t.Errorf("the listener was not taken apart: %+v", l.Chains)
	}
	got, err := l.Whole()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, proto.Message(got), protocmp.Transform()); diff != "" {
		t.Errorf("the listener changed (-want +got):\n%s", diff)
	}
}

// TestSetWholeCluster checks the same for clusters, and that an invalid message does not change the
// draft.
func TestSetWholeCluster(t *testing.T) {
	options := &httpv3.HttpProtocolOptions{}
	if err := protojson.Unmarshal(
		[]byte(`{"explicitHttpConfig":{"httpProtocolOptions":{}},"commonHttpProtocolOptions":{"idleTimeout":"5s"}}`),
		options); err != nil {
		t.Fatal(err)
	}
	for name, typed := range map[string]map[string]*anypb.Any{
		"none":              nil,
		"options":           {draft.NameHTTPOptions: pack(t, options)},
		"options and other": {draft.NameHTTPOptions: pack(t, options), "other": pack(t, durationpb.New(1))},
		"of another type":   {draft.NameHTTPOptions: pack(t, durationpb.New(1))},
	} {
		m := &clusterv3.Cluster{Name: "c", TypedExtensionProtocolOptions: typed}
		want := proto.Clone(m)
		c := cluster("old")
		if err := c.SetWhole(m); err != nil {
			t.Fatal(err)
		}
		got, err := c.Whole()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, proto.Message(got), protocmp.Transform()); diff != "" {
			t.Errorf("%s: the cluster changed (-want +got):\n%s", name, diff)
		}
	}
	c := cluster("old")
	broken := &clusterv3.Cluster{Name: "new", TypedExtensionProtocolOptions: map[string]*anypb.Any{
		draft.NameHTTPOptions: {TypeUrl: pack(t, options).TypeUrl, Value: []byte{0xff}},
	}}
	if err := c.SetWhole(broken); err == nil || c.Message.Name != "old" || c.HTTP != draft.HTTP2Options {
		t.Errorf("broken options were taken: %v, %v", err, c.Message)
	}
	l := &draft.Listener{Message: &listenerv3.Listener{Name: "old"}}
	if err := l.SetWhole(
		&listenerv3.Listener{Name: "new", FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: draft.NameHCM,
			ConfigType: &listenerv3.Filter_TypedConfig{
				TypedConfig: &anypb.Any{TypeUrl: pack(t, &hcmv3.HttpConnectionManager{}).TypeUrl, Value: []byte{0xff}},
			},
		}}}}}); err == nil || l.Message.Name != "old" {
		t.Errorf("a broken filter was taken: %v, %v", err, l.Message)
	}
}

// TestMadeBy checks the origins that patches match.
func TestMadeBy(t *testing.T) {
	for want, got := range map[string]string{
		"inbound":       (&draft.Listener{Kind: draft.Inbound}).MadeBy(),
		"outbound":      (&draft.Listener{Kind: draft.Outbound}).MadeBy(),
		"transparent":   (&draft.Listener{Kind: draft.OutboundPassthrough}).MadeBy(),
		"direct-access": (&draft.Listener{Kind: draft.DirectAccess}).MadeBy(),
		"prometheus":    (&draft.Cluster{Kind: draft.OutboundCluster, Origin: "prometheus"}).MadeBy(),
		"":              (&draft.Cluster{Kind: draft.OtherCluster}).MadeBy(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
