package ads_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// These tests show that nothing is sent by the next received response: the responses of a stream
// are ordered, so an unwanted one would precede the expected one.

func TestDeltaSubscriptions(t *testing.T) {
	a := serving(t, config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=1", "LDS:l=1", "RDS:r=1"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS a=1 b=1")
	c.subscribe(eds, "a", "gone")
	c.wantAck("EDS a=1 -gone")
	c.subscribe(lds, "*")
	c.wantAck("LDS l=1")
	c.subscribe(eds, "a") // Envoy warms the cluster again and needs a response although nothing changed
	c.wantAck("EDS a=1")
	c.subscribe(eds, "gone") // a repeated request gets a repeated response
	c.wantAck("EDS -gone")

	// The server sends only changed resources to which the client is subscribed.
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=2", "LDS:l=2", "RDS:r=2"))
	c.wantAck("LDS l=2")
	// The missing name appears.
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=2", "EDS:gone=1", "LDS:l=2", "RDS:r=2"))
	c.wantAck("EDS gone=1")
	// An unsubscribed name is not sent any more.
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesUnsubscribe: []string{"gone"}})
	c.subscribe(eds, "b")
	c.wantAck("EDS b=2")
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=2", "EDS:b=2", "EDS:gone=2", "LDS:l=2", "RDS:r=2"))
	c.wantAck("EDS a=2")
	// With the wildcard, the client stays subscribed to an unsubscribed name and must receive its
	// state.
	c.subscribe(lds, "l")
	c.wantAck("LDS l=2")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: lds, ResourceNamesUnsubscribe: []string{"l"}})
	c.wantAck("LDS l=2")
}

func TestDeltaEmpty(t *testing.T) {
	a := serving(t, config())
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS") // so that Envoy does not wait for its initial fetch to time out
	a.push(config("LDS:l=1"))
	c.wantAck("LDS l=1")
	a.push(config())
	c.wantAck("LDS -l")
}

// TestDeltaResume: a client that reconnects to a restarted agent receives nothing that it already
// has.
func TestDeltaResume(t *testing.T) {
	cfg := config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=1", "LDS:l=1")
	a := serving(t, cfg)
	c := a.delta("default.web")
	c.resume(cds, versionsOf(cfg, cds), "*")
	c.resume(eds, versionsOf(cfg, eds), "a", "b")
	c.resume(lds, versionsOf(cfg, lds))
	c.resume(rds, nil, "r") // a response to wait for
	c.wantAck("RDS -r")
	if p := a.status("default.web"); !p.InSync && len(p.Types) != 4 {
		t.Errorf("not in sync: %+v", p)
	}
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=2", "LDS:l=1"))
	c.wantAck("EDS b=2")
}

func TestDeltaResumeChanged(t *testing.T) {
	a := serving(t, config("CDS:a=2", "CDS:b=1", "CDS:c=1", "EDS:a=2", "EDS:b=1"))
	old := config("CDS:a=1", "CDS:b=1", "CDS:gone=1", "EDS:a=1", "EDS:b=1")
	c := a.delta("default.web")
	c.resume(cds, versionsOf(old, cds)) // an absent list is the wildcard
	c.wantAck("CDS a=2 c=1 -gone")
	c.resume(eds, versionsOf(old, eds), "a", "b", "new")
	c.wantAck("EDS a=2 -new")

	c = a.delta("default.web")
	c.resume(cds, versionsOf(old, cds), "*") // the explicit wildcard (hashicorp/consul 12174)
	c.wantAck("CDS a=2 c=1 -gone")
	a.push(config("CDS:a=2", "CDS:b=2", "CDS:c=1", "CDS:d=1", "EDS:a=2", "EDS:b=1"))
	c.wantAck("CDS b=2 d=1")
}

// TestDeltaResumeEnvoy: Envoy requests its listeners right after its clusters, so clusters to which
// they may still refer are retained.
func TestDeltaResumeEnvoy(t *testing.T) {
	a := serving(t, config("CDS:a=1", "LDS:l=2"))
	old := config("CDS:a=1", "CDS:gone=1", "LDS:l=1")
	c := deltaOn(t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
	c.resume(cds, versionsOf(old, cds))
	c.resume(lds, versionsOf(old, lds))
	c.wantAck("LDS l=2")
	c.wantAck("CDS -gone")
}

// TestOrder: resources are sent before those that refer to them and removed after them.
func TestOrder(t *testing.T) {
	a := serving(t, config("CDS:a=1", "CDS:old=1", "EDS:a=1", "EDS:old=1", "LDS:l=1", "RDS:r=1", "RDS:old=1"))
	c := a.delta("default.web")
	for _, s := range []struct {
		typeURL, want string
		names         []string
	}{
		{cds, "CDS a=1 old=1", nil}, {eds, "EDS a=1 old=1", []string{"a", "old"}}, {lds, "LDS l=1", nil},
		{rds, "RDS old=1 r=1", []string{"old", "r"}},
	} {
		c.subscribe(s.typeURL, s.names...)
		c.wantAck(s.want)
	}
	a.push(config("CDS:a=1", "CDS:new=1", "EDS:a=2", "LDS:l=2", "RDS:r=2"))
	cluster := c.want("CDS new=1")
	endpoints := c.want("EDS a=2")
	listener := c.want("LDS l=2")
	route := c.want("RDS r=2")
	c.ack(cluster)
	c.ack(endpoints)
	c.ack(route)
	if p := a.status("default.web"); p.InSync {
		t.Error("in sync before the listeners are acknowledged")
	}
	c.ack(listener)
	// The listeners no longer refer to their old routes. So the routes can be removed, then the
	// clusters, and then their endpoints.
	r := c.want("RDS -old")
	c.ack(r)
	c.wantAck("CDS -old")
	c.wantAck("EDS -old")
	c.subscribe(rds, "x") // a round trip, so that the server has read the last acknowledgement
	c.wantAck("RDS -x")
	c.subscribe(rds, "x")
	c.want("RDS -x")
	if ts := typeStatus(t, a.status("default.web"), cds); ts.AckedVersion != config("CDS:a=1", "CDS:new=1").Versions[1] ||
		ts.Resources != 2 {
		t.Errorf("status of clusters: %+v", ts)
	}
}

// TestAdditionsWait: a listener is not sent before the cluster to which it refers.
func TestAdditionsWait(t *testing.T) {
	a := serving(t, config("CDS:a=1", "LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe(cds)
	clusters := c.want("CDS a=1")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	// The clusters are not acknowledged, so neither they nor resources that refer to them are sent.
	a.push(config("CDS:a=1", "CDS:b=1", "LDS:l=2", "RDS:r=1"))
	c.subscribe(rds, "r", "x") // not even the client's first route
	c.ack(clusters)
	for _, want := range []string{"CDS b=1", "LDS l=2", "RDS r=1 -x"} {
		c.wantAck(want)
	}
}

// TestClusterUpdateWarms: the endpoints of an updated cluster are sent again, since Envoy waits for
// them.
func TestClusterUpdateWarms(t *testing.T) {
	a := serving(t, config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=1"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS a=1 b=1")
	c.subscribe(eds, "a", "b")
	c.wantAck("EDS a=1 b=1")
	a.push(config("CDS:a=2", "CDS:b=1", "CDS:c=1", "EDS:a=1", "EDS:b=1", "EDS:c=1"))
	c.wantAck("CDS a=2 c=1")
	c.wantAck("EDS a=1")
	c.subscribe(eds, "c")
	c.wantAck("EDS c=1")
}

func TestPublishOthers(t *testing.T) {
	a := serving(t, config("LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	d := a.delta("default.other")
	d.subscribe(lds)
	d.wantAck("LDS l=1")
	a.give(node.Key{ID: "default.other", Flavor: node.FlavorEnvoy}, config("LDS:l=2"))
	d.wantAck("LDS l=2")
	a.push(config("LDS:l=1")) // the same content in other slices
	a.push(config("LDS:l=3"))
	c.wantAck("LDS l=3")
}
