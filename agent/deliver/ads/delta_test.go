package ads_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/model/node"
)

// That nothing is sent is shown throughout by what is received next: the responses of a stream are
// ordered, so an unwanted one would come before the wanted one.

func TestDeltaSubscriptions(t *testing.T) {
	a := serving(t, config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=1", "LDS:l=1", "RDS:r=1"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS a=1 b=1")
	c.subscribe(eds, "a", "gone")
	c.wantAck("EDS a=1 -gone")
	c.subscribe(lds, "*")
	c.wantAck("LDS l=1")
	c.subscribe(eds, "a") // Envoy warms the cluster anew: the answer is due although nothing changed
	c.wantAck("EDS a=1")
	c.subscribe(eds, "gone") // asked again, told again
	c.wantAck("EDS -gone")

	// Only what changed is sent, and only of what the client is subscribed to.
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=2", "LDS:l=2", "RDS:r=2"))
	c.wantAck("LDS l=2")
	// The missing name appears.
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=2", "EDS:gone=1", "LDS:l=2", "RDS:r=2"))
	c.wantAck("EDS gone=1")
	// A name that is given up is not heard of again.
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesUnsubscribe: []string{"gone"}})
	c.subscribe(eds, "b")
	c.wantAck("EDS b=2")
	a.push(config("CDS:a=1", "CDS:b=1", "EDS:a=2", "EDS:b=2", "EDS:gone=2", "LDS:l=2", "RDS:r=2"))
	c.wantAck("EDS a=2")
	// With the wildcard a name that is given up stays, and the client must hear how it stands.
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

// TestDeltaResume: a client that comes back to a restarted agent is sent nothing that it has.
func TestDeltaResume(t *testing.T) {
	cfg := config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=1", "LDS:l=1")
	a := serving(t, cfg)
	c := a.delta("default.web")
	c.resume(cds, versionsOf(cfg, cds), "*")
	c.resume(eds, versionsOf(cfg, eds), "a", "b")
	c.resume(lds, versionsOf(cfg, lds))
	c.resume(rds, nil, "r") // something to wait for
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
	c.resume(cds, versionsOf(old, cds), "*") // and so is the explicit one (hashicorp/consul 12174)
	c.wantAck("CDS a=2 c=1 -gone")
	a.push(config("CDS:a=2", "CDS:b=2", "CDS:c=1", "CDS:d=1", "EDS:a=2", "EDS:b=1"))
	c.wantAck("CDS b=2 d=1")
}

// TestDeltaResumeEnvoy: Envoy asks for its listeners right after its clusters, so what they may
// still refer to stays.
func TestDeltaResumeEnvoy(t *testing.T) {
	a := serving(t, config("CDS:a=1", "LDS:l=2"))
	old := config("CDS:a=1", "CDS:gone=1", "LDS:l=1")
	c := deltaOn(t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
	c.resume(cds, versionsOf(old, cds))
	c.resume(lds, versionsOf(old, lds))
	c.wantAck("LDS l=2")
	c.wantAck("CDS -gone")
}

// TestOrder: resources arrive before those that refer to them, and are removed after them.
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
	// The listeners have moved on: their routes may go, and then the clusters, and then their
	// endpoints.
	r := c.want("RDS -old")
	c.ack(r)
	c.wantAck("CDS -old")
	c.wantAck("EDS -old")
	c.subscribe(rds, "x") // a round trip, so that the last acknowledgement is in
	c.wantAck("RDS -x")
	c.subscribe(rds, "x")
	c.want("RDS -x")
	if ts := typeStatus(t, a.status("default.web"), cds); ts.AckedVersion != config("CDS:a=1", "CDS:new=1").Versions[1] ||
		ts.Resources != 2 {
		t.Errorf("status of clusters: %+v", ts)
	}
}

// TestAdditionsWait: a listener does not overtake the cluster that it refers to.
func TestAdditionsWait(t *testing.T) {
	a := serving(t, config("CDS:a=1", "LDS:l=1"))
	c := a.delta("default.web")
	c.subscribe(cds)
	clusters := c.want("CDS a=1")
	c.subscribe(lds)
	c.wantAck("LDS l=1")
	// The clusters are not acknowledged, so neither they nor what refers to them can go on.
	a.push(config("CDS:a=1", "CDS:b=1", "LDS:l=2", "RDS:r=1"))
	c.subscribe(rds, "r", "x") // not even a route that would be the first
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
