package ads_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Body words that select the protocol of a listener.
const (
	forHTTP = "for HTTP"
	forTCP  = "for TCP"
)

// draining starts an agent with a config and a clock that the test sets.
func draining(t *testing.T, cfg *draft.Sealed) (*agent, *atomic.Int64) {
	now, clock := time.Now(), &atomic.Int64{}
	return servingWith(t, cfg, options{
		DrainTime: 10 * time.Minute, HandoverTime: time.Minute,
		Now: func() time.Time { return now.Add(time.Duration(clock.Load())) },
	}), clock
}

// TestInboundBecomesTCPAfterItsClients: an inbound for HTTP accepts the traffic of clients with
// either config.
func TestInboundBecomesTCPAfterItsClients(t *testing.T) {
	const in = "inbound:127.0.0.1:80"
	a, clock := draining(t, config("CDS:b=1", "CDS:localhost:1=http", "LDS:"+in+"=localhost:1 "+forHTTP))
	c := a.asEnvoy("CDS b=1 localhost:1=http", "LDS "+in+"=localhost:1 "+forHTTP, "RDS -r", "r")
	tcp := []string{"CDS:localhost:1=tcp", "LDS:" + in + "=localhost:1 " + forTCP}
	a.push(config(append(tcp, "CDS:b=2")...))
	c.wantAck("CDS b=2") // the listener and its cluster have to wait
	if p := a.Progress(); p[0].Answered >= p[0].Revision && p[0].Revision > 0 {
		t.Error("the change counts as answered")
	}
	a.wait(func() bool { p := a.Progress()[0]; return len(p.Unanswered) == 0 && !p.HandoverUntil.IsZero() })
	a.wait(func() bool { return len(a.Progress()[0].Unanswered) == 0 })
	clock.Store(int64(2 * time.Minute))
	a.push(config(append(tcp, "CDS:b=3")...))
	c.wantAck("CDS b=3 localhost:1=tcp")
	c.wantAck("LDS " + in + "=localhost:1 " + forTCP)
	// In the other direction, the inbound changes first.
	a.push(config("CDS:b=3", "CDS:localhost:1=tcp", "LDS:"+in+"=localhost:1 "+forHTTP))
	c.wantAck("LDS " + in + "=localhost:1 " + forHTTP)
}

// TestOutboundBecomesTCPFirst: the old filter chains of an outbound still use the protocol of their
// downstream connections until they have drained, since the server soon accepts no HTTP/2.
func TestOutboundBecomesTCPFirst(t *testing.T) {
	const out = "outbound:127.0.0.1:80"
	a, clock := draining(t, config("CDS:a=1", "CDS:b=1", "LDS:"+out+"=r "+forHTTP, "RDS:r=a"))
	c := a.asEnvoy("CDS a=1 b=1", "LDS "+out+"=r "+forHTTP, "RDS r=a", "r")
	a.push(config("CDS:a=1", "CDS:b=1", "LDS:"+out+"=a "+forTCP))
	c.wantAck("LDS " + out + "=a " + forTCP)
	resp := c.want("CDS a=1")
	if !followsDownstream(t, resp) {
		t.Error("the cluster does not follow its client")
	}
	c.ack(resp)
	a.wait(func() bool { return a.status("default.web").InSync })
	clock.Store(int64(11 * time.Minute))
	a.push(config("CDS:a=1", "CDS:b=2", "LDS:"+out+"=a "+forTCP))
	resp = c.want("CDS a=1 b=2")
	if followsDownstream(t, resp) {
		t.Error("the cluster follows its client although nothing drains")
	}
	c.ack(resp)
	c.wantAck("RDS -r")
	// In the other direction, the outbound waits for the server.
	http := []string{"CDS:a=1", "LDS:" + out + "=r " + forHTTP, "RDS:r=a"}
	a.push(config(append(http, "CDS:b=3")...))
	c.wantAck("CDS b=3")
	c.wantAck("RDS r=a") // the client is subscribed to it
	a.wait(func() bool { return len(a.Progress()[0].Unanswered) == 0 })
	clock.Store(int64(13 * time.Minute))
	a.push(config(append(http, "CDS:b=4")...))
	c.wantAck("CDS b=4")
	c.wantAck("LDS " + out + "=r " + forHTTP)
}

func followsDownstream(t *testing.T, resp *discoveryv3.DeltaDiscoveryResponse) bool {
	t.Helper()
	var c clusterv3.Cluster
	var o httpv3.HttpProtocolOptions
	if err := resp.Resources[0].Resource.UnmarshalTo(&c); err != nil {
		t.Fatal(err)
	}
	a := c.TypedExtensionProtocolOptions[draft.NameHTTPOptions]
	return a != nil && a.UnmarshalTo(&o) == nil && o.GetUseDownstreamProtocolConfig() != nil
}

// guarded returns a config with an inbound that admits either everybody or nobody.
func guarded(t *testing.T, open bool) *draft.Sealed {
	t.Helper()
	rules := &rbacv3.RBAC{}
	if open {
		rules.Policies = map[string]*rbacv3.Policy{"all": {
			Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
			Principals:  []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}},
		}}
	}
	seal1 := func(rank int, name string, m proto.Message) *draft.Resource {
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return draft.NewResource(rank, name, body)
	}
	manager := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: "in"}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "rbac",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: packed(&httprbacv3.RBAC{Rules: rules})}}},
	}
	s := &draft.Sealed{}
	s.Resources[draft.RankListener] = []*draft.Resource{seal1(draft.RankListener, "in",
		&listenerv3.Listener{Name: "in", FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(manager)}}},
		}}})}
	s.Resources[draft.RankRoute] = []*draft.Resource{seal1(draft.RankRoute, "in", &routev3.RouteConfiguration{Name: "in"})}
	return seal(s)
}

// overrides returns whom the routes' override of the RBAC filter admits: "all", "none", or ""
// without an override.
func overrides(t *testing.T, resp *discoveryv3.DeltaDiscoveryResponse) string {
	t.Helper()
	var m routev3.RouteConfiguration
	var over httprbacv3.RBACPerRoute
	if resp.TypeUrl != rds || len(resp.Resources) != 1 || resp.Resources[0].Resource.UnmarshalTo(&m) != nil {
		t.Fatalf("not routes: %v", resp)
	}
	switch a := m.TypedPerFilterConfig["rbac"]; {
	case a == nil:
		return ""
	case a.UnmarshalTo(&over) != nil || over.Rbac == nil:
		t.Fatalf("no override: %v", a)
	case len(over.Rbac.Rules.Policies) == 0:
		return "none"
	}
	return "all"
}

// next receives and acknowledges a response.
func (c *deltaClient) next(typeURL string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	resp := c.recv()
	if resp.TypeUrl != typeURL {
		c.t.Fatalf("got %s, want %s", deltaLine(resp), typeURL)
	}
	c.ack(resp)
	return resp
}

// TestPermissionsReachOldFilterChains: old and new filter chains share routes. While old chains
// drain, the routes contain the current permissions, also after a restart of the agent.
func TestPermissionsReachOldFilterChains(t *testing.T) {
	open, closed := guarded(t, true), guarded(t, false)
	a, clock := draining(t, open)
	c := a.delta("default.web")
	c.node.UserAgentName = "envoy"
	c.subscribe(cds)
	c.next(cds)
	c.subscribe(lds)
	c.next(lds)
	c.subscribe(rds, "in")
	if got := overrides(t, c.next(rds)); got != "" {
		t.Errorf("nothing drains, and %q is admitted by the routes", got)
	}
	a.push(closed)
	c.next(lds)
	resp := c.next(rds)
	if got := overrides(t, resp); got != "none" {
		t.Errorf("%q is admitted on old filter chains", got)
	}
	served := map[string]string{"in": resp.Resources[0].Version}
	a.wait(func() bool { return a.status("default.web").InSync })
	if d := a.Progress()[0].Draining; len(d) != 1 || !slices.Equal(d[0].Listeners, []string{"in"}) {
		t.Errorf("connections may be on old filter chains: %+v", d)
	}
	clock.Store(int64(11 * time.Minute))
	s := guarded(t, false) // another config, since the server does not notice that the clock changed
	s.Resources[draft.RankCluster] = []*draft.Resource{resourceOf(draft.RankCluster, "x", "1")}
	moved := seal(s)
	a.push(moved)
	c.next(cds)
	if got := overrides(t, c.next(rds)); got != "" {
		t.Errorf("nothing drains any longer, and %q is admitted by the routes", got)
	}

	// The Envoy connects to another agent while it drains.
	b, clock := draining(t, closed)
	d := b.delta("default.web")
	d.node.UserAgentName = "envoy"
	d.resume(cds, map[string]string{"old": "1"})
	d.resume(lds, versionsOf(closed, lds))
	d.resume(rds, served, "in")
	d.subscribe(eds, "y")
	d.wantAck("EDS -y") // no other response precedes it
	b.wait(func() bool { return b.status("default.web").InSync })
	clock.Store(int64(11 * time.Minute))
	b.push(moved)
	d.wantAck("CDS x=1")
	if got := overrides(t, d.next(rds)); got != "" {
		t.Errorf("nothing drains any longer, and %q is admitted by the routes", got)
	}
	d.wantAck("CDS -old") // retained until now, although nothing refers to it
}
