package draft_test

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

func cluster(name string) *draft.Cluster {
	return &draft.Cluster{Message: &clusterv3.Cluster{Name: name}, HTTP: draft.HTTP2Options}
}

// TestConstants checks that the filters and options that are encoded at startup are valid.
func TestConstants(t *testing.T) {
	for _, e := range draft.GRPCFilters {
		a, err := e.Pack()
		if err != nil || a == nil || !strings.HasPrefix(a.TypeUrl, "type.googleapis.com/envoy.extensions.filters.http.") {
			t.Errorf("%s: %v, %v", e.Name, a, err)
		}
	}
	s, faults := draft.Seal(&draft.Draft{Clusters: []*draft.Cluster{cluster("a")}}, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var c clusterv3.Cluster
	if err := proto.Unmarshal(s.Resources[draft.Rank(draft.TypeCluster)][0].Body(), &c); err != nil {
		t.Fatal(err)
	}
	if o := c.TypedExtensionProtocolOptions[draft.NameHTTPOptions]; o == nil || len(o.Value) == 0 {
		t.Errorf("the cluster has no HTTP options: %v", &c)
	}
}

// TestSealIsolatesFaults seals a valid and three invalid resources. It checks that the faults name
// the invalid ones, and that those that can be encoded are in the result, because a client with a
// previous version would otherwise remove it.
func TestSealIsolatesFaults(t *testing.T) {
	bad := cluster("bad")
	bad.Message.ConnectTimeout = durationpb.New(-1)
	chain := &draft.Chain{
		Network: []draft.Extension{{Name: "envoy.filters.network.rbac", Message: &rbacv3.RBAC{}}}, // stat_prefix is required
		TCP:     &tcpv3.TcpProxy{StatPrefix: "x", ClusterSpecifier: &tcpv3.TcpProxy_Cluster{Cluster: "good"}},
	}
	listener := &draft.Listener{Message: &listenerv3.Listener{Name: "l"}, Chains: []*draft.Chain{chain}}
	unsayable := cluster("\xff")
	s, faults := draft.Seal(&draft.Draft{Clusters: []*draft.Cluster{bad, unsayable, cluster("good")},
		Listeners: []*draft.Listener{listener}}, nil)
	if len(faults) != 3 {
		t.Fatalf("got faults %v, want 3", faults)
	}
	for i, want := range []string{`Cluster "bad": `, `Cluster "\xff": `, `Listener "l": filter chain 0`} {
		if !strings.Contains(faults[i].Error(), want) || faults[i].Left != (i == 1) {
			t.Errorf("fault %q (left out: %t) does not name %s", faults[i].Error(), faults[i].Left, want)
		}
	}
	got := s.Resources[draft.Rank(draft.TypeCluster)]
	if len(got) != 2 || got[0].Name != "bad" || got[1].Name != "good" {
		t.Errorf("got clusters %v, want bad and good", got)
	}
	var l listenerv3.Listener
	if list := s.Resources[draft.Rank(draft.TypeListener)]; len(list) != 1 || proto.Unmarshal(list[0].Body(), &l) != nil ||
		len(l.FilterChains[0].Filters) != 2 {
		t.Errorf("got listeners %v, want l with both filters", list)
	}
}

// TestSealOrders checks that Seal sorts by name, keeps the first of two resources with the same
// name, and hashes only the content.
func TestSealOrders(t *testing.T) {
	seal := func(names ...string) *draft.Sealed {
		d := &draft.Draft{}
		for _, n := range names {
			d.Clusters = append(d.Clusters, cluster(n))
		}
		s, faults := draft.Seal(d, nil)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return s
	}
	rank := draft.Rank(draft.TypeCluster)
	a, b, c := seal("b", "a", "b"), seal("a", "b"), seal("a", "c")
	if len(a.Resources[rank]) != 2 || a.Resources[rank][0].Name != "a" {
		t.Errorf("got %v", a.Resources[rank])
	}
	if a.Versions != b.Versions {
		t.Error("the order of a draft changes the version")
	}
	if b.Versions[rank] == c.Versions[rank] {
		t.Error("other content has the same version")
	}
	if b.Versions[draft.Rank(draft.TypeListener)] == "" {
		t.Error("an empty list has no version")
	}
}

// TestEditHTTPCopies checks that an edit of one cluster's options does not change the shared value.
func TestEditHTTPCopies(t *testing.T) {
	a, b := cluster("a"), cluster("b")
	a.EditHTTP().UpstreamProtocolOptions = nil
	if b.HTTP.UpstreamProtocolOptions == nil || draft.HTTP2Options.UpstreamProtocolOptions == nil {
		t.Fatal("changing one cluster changed the shared options")
	}
	own := a.HTTP
	if a.EditHTTP() != own {
		t.Error("a cluster's own options were copied again")
	}
	c := &draft.Cluster{}
	if c.EditHTTP() == nil || c.HTTP == nil {
		t.Error("a cluster without options got none to edit")
	}
}
