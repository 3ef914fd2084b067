package draft_test

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// routed returns a listener with a chain for each name. For "", "tls", and "raw" the chain has no
// name. For "tls" and "raw" it matches that transport protocol.
func routed(name string, chains ...string) *draft.Listener {
	l := &draft.Listener{Kind: draft.Inbound, Tags: map[string]string{"a": "b"}, Message: &listenerv3.Listener{Name: name}}
	for _, c := range chains {
		m := &listenerv3.FilterChain{Name: c}
		if c == "tls" || c == "raw" {
			m = &listenerv3.FilterChain{FilterChainMatch: &listenerv3.FilterChainMatch{TransportProtocol: c,
				ApplicationProtocols: []string{"x"}}}
		}
		l.Chains = append(l.Chains, &draft.Chain{Message: m, HTTP: &draft.HTTP{
			Message: &hcmv3.HttpConnectionManager{StatPrefix: "s"}, Filters: draft.PlainFilters,
			Routes: &routev3.RouteConfiguration{Name: "own",
				VirtualHosts: []*routev3.VirtualHost{{Name: "h", Domains: []string{c + ".example"}}}},
		}})
	}
	return l
}

// TestRoutesAreSplitOff checks that a sealed listener refers to its routes, which are separate
// resources, and that the draft is unchanged.
func TestRoutesAreSplitOff(t *testing.T) {
	for _, c := range []struct {
		listeners []*draft.Listener
		want      string
	}{
		{[]*draft.Listener{routed("l", "")}, "l"},
		{[]*draft.Listener{routed("l", "a", "b")}, "l#a l#b"},
		{[]*draft.Listener{routed("l", "b", "c")}, "l#b l#c"}, // a removed chain does not change other names
		{[]*draft.Listener{routed("l", "raw", "tls", "")}, "l l#raw,x l#tls,x"},
		{[]*draft.Listener{routed("l", "a", "a", "a#1")}, "l#a l#a#1 l#a#1#2"},
		{[]*draft.Listener{routed("l", "a"), routed("l#a", "")}, "l#a l%23a"},
		{[]*draft.Listener{routed("l", "x/*"), routed("m/*", "")}, "l#x/*#0 m/*#0"},
	} {
		s := draft.NewSealer(nil)
		s.Add(&draft.Draft{Listeners: c.listeners})
		sealed, faults := s.Finish()
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		domains := map[string]string{}
		var names []string
		for _, r := range sealed.Resources[draft.RankRoute] {
			m := &routev3.RouteConfiguration{}
			if err := proto.Unmarshal(r.Body(), m); err != nil || m.Name != r.Name {
				t.Fatalf("%s: %v, %v", r.Name, m, err)
			}
			names = append(names, r.Name)
			domains[r.Name] = m.VirtualHosts[0].Domains[0]
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		for _, r := range sealed.Resources[draft.RankListener] {
			m := &listenerv3.Listener{}
			if err := proto.Unmarshal(r.Body(), m); err != nil {
				t.Fatal(err)
			}
			if m.Metadata != nil {
				t.Errorf("%s: an inbound has metadata, for which Envoy would replace it", r.Name)
			}
			of := c.listeners[slices.IndexFunc(c.listeners, func(l *draft.Listener) bool { return l.Message.Name == r.Name })]
			for i, fc := range m.FilterChains {
				hcm := &hcmv3.HttpConnectionManager{}
				if err := fc.Filters[0].GetTypedConfig().UnmarshalTo(hcm); err != nil {
					t.Fatal(err)
				}
				rds, own := hcm.GetRds(), of.Chains[i].HTTP.Routes
				if domains[rds.GetRouteConfigName()] != own.VirtualHosts[0].Domains[0] || rds.ConfigSource.GetAds() == nil ||
					rds.ConfigSource.InitialFetchTimeout.AsDuration() != 0 || rds.ConfigSource.InitialFetchTimeout == nil {
					t.Errorf("%s: chain %d has %v", r.Name, i, rds)
				}
				if own.Name != "own" || of.Chains[i].HTTP.Message.RouteSpecifier != nil {
					t.Errorf("%s: the draft of chain %d was changed", r.Name, i)
				}
			}
		}
	}
}

// TestBrokenRoutes checks that a fault in routes is a fault of the route configuration and not of
// its listener.
func TestBrokenRoutes(t *testing.T) {
	l := routed("l", "")
	l.Chains[0].HTTP.Routes.VirtualHosts[0].Domains = nil
	s := draft.NewSealer(nil)
	s.Add(&draft.Draft{Listeners: []*draft.Listener{l}})
	sealed, faults := s.Finish()
	if len(faults) != 1 || faults[0].Type != draft.TypeRoute || faults[0].Name != "l" || faults[0].Left {
		t.Errorf("faults are %v", faults)
	}
	if len(sealed.Resources[draft.RankListener]) != 1 || len(sealed.Resources[draft.RankRoute]) != 1 {
		t.Error("what the check is to judge is missing")
	}
}

// TestInlineRoutes checks that with Inline a sealed listener contains its routes and tags, as
// patches expect it.
func TestInlineRoutes(t *testing.T) {
	s := draft.NewSealer(nil)
	s.Inline = true
	l := routed("l", "")
	s.Add(&draft.Draft{Listeners: []*draft.Listener{l}})
	sealed, _ := s.Finish()
	m := &listenerv3.Listener{}
	if err := proto.Unmarshal(sealed.Resources[draft.RankListener][0].Body(), m); err != nil || m.GetMetadata() == nil ||
		len(sealed.Resources[draft.RankRoute]) > 0 {
		t.Errorf("%v, %v", m, err)
	}
	whole, err := l.Whole()
	if err != nil || !proto.Equal(whole, m) {
		t.Errorf("as a whole it is %v, %v", whole, err)
	}
	if err := l.SetWhole(whole); err != nil || l.Tags["a"] != "b" || l.Message.Metadata != nil {
		t.Errorf("tags that a change left alone are in the metadata: %v, %v", l.Message, err)
	}
}
