package ads_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func TestSotwSubscriptions(t *testing.T) {
	a := serving(t, config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1", "LDS:l=l1", "RDS:r=r1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(cds)
	c.wantAck("CDS a1 b1")
	c.ask(eds, "a")
	c.wantAck("EDS ea1", "a")
	c.ask(lds)
	c.wantAck("LDS l1")
	// Only the additional name is answered.
	c.ask(eds, "a", "b")
	c.wantAck("EDS eb1", "a", "b")
	// A name that does not exist is missing from the response, and sent when it exists.
	c.ask(eds, "a", "b", "new")
	c.wantAck("EDS", "a", "b", "new")
	a.push(config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1", "EDS:new=en1", "LDS:l=l1", "RDS:r=r1"))
	c.wantAck("EDS en1", "a", "b", "new")
	// Only the changed types and endpoints are sent.
	a.push(config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb2", "EDS:new=en1", "LDS:l=l2", "RDS:r=r2"))
	c.wantAck("EDS eb2", "a", "b", "new")
	c.wantAck("LDS l2")
	// The client drops a name and adds it again.
	c.ask(eds, "b", "new")
	c.ask(eds, "a", "b", "new")
	c.wantAck("EDS ea1", "a", "b", "new")
}

// TestSotwResume: the version states which resources a client has, also for a list of names.
func TestSotwResume(t *testing.T) {
	cfg := config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1", "LDS:l=l1")
	a := serving(t, cfg)
	c := a.sotw(nodeOf("default.web"))
	c.ask(cds)
	c.wantAck("CDS a1 b1")
	c.ask(eds, "a", "b")
	c.wantAck("EDS ea1 eb1", "a", "b")
	c.ask(lds)
	c.wantAck("LDS l1")
	if c.version[lds] != cfg.Versions[draft.Rank(lds)] {
		t.Errorf("version of listeners %q, want that of the config", c.version[lds])
	}
	a.stop()

	b := serving(t, cfg)
	d := b.sotw(nodeOf("default.web"))
	d.version = c.version
	d.ask(cds)
	d.ask(eds, "a", "b")
	d.ask(lds)
	d.ask(rds, "r")
	d.wantAck("RDS", "r")
	b.push(config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1", "LDS:l=l2"))
	d.wantAck("LDS l2")

	// A client that added a name just before the connection broke has the version of the list
	// without that name.
	e := b.sotw(nodeOf("default.web"))
	e.version[eds] = c.version[eds]
	b.push(config("EDS:a=ea1", "EDS:b=eb1", "EDS:c=ec1"))
	e.ask(eds, "a", "b", "c")
	e.wantAck("EDS ea1 eb1 ec1", "a", "b", "c")
}

// TestSotwWarm: by ENVOY rule 115, Envoy requests the endpoints of a changed cluster again, with
// its current names, version, and nonce, and must receive a response.
func TestSotwWarm(t *testing.T) {
	a := serving(t, config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(cds)
	c.wantAck("CDS a1 b1")
	c.ask(eds, "a", "b")
	c.wantAck("EDS ea1 eb1", "a", "b")
	a.push(config("CDS:a=a2", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1"))
	c.wantAck("CDS a2 b1")
	c.ask(eds, "a", "b")
	c.wantAck("EDS ea1", "a", "b")
	a.push(config("CDS:a=a2", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb2"))
	c.wantAck("EDS eb2", "a", "b")
}

// TestSotwOrder: a cluster is removed by its absence, so it stays in the list until the listeners
// no longer refer to it.
func TestSotwOrder(t *testing.T) {
	a := serving(t, config("CDS:a=a1", "CDS:old=o1", "LDS:l=l1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(cds)
	c.wantAck("CDS a1 o1")
	c.ask(lds)
	c.wantAck("LDS l1")
	a.push(config("CDS:a=a1", "CDS:new=n1", "LDS:l=l2"))
	c.wantAck("CDS a1 n1 o1")
	c.wantAck("LDS l2")
	c.wantAck("CDS a1 n1")
	a.push(config("CDS:new=n1", "LDS:l=l2")) // nothing refers to it, so nothing waits
	c.wantAck("CDS n1")
	a.push(config("LDS:l=l2"))
	c.wantAck("CDS")
	a.push(config("LDS:l=l3"))
	c.wantAck("LDS l3")
}

// TestSotwStale: a request with the nonce of an older response is not an acknowledgement and gets
// no response.
func TestSotwStale(t *testing.T) {
	a := serving(t, config("LDS:l=l1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(lds)
	c.wantAck("LDS l1")
	stale := c.nonce[lds]
	a.push(config("LDS:l=l2"))
	resp := c.want("LDS l2")
	c.send(&discoveryv3.DiscoveryRequest{TypeUrl: lds, VersionInfo: c.version[lds], ResponseNonce: stale})
	a.push(config("LDS:l=l3"))
	c.ask(rds, "r")
	c.wantAck("RDS", "r")
	c.version[lds] = resp.GetVersionInfo()
	c.ask(lds)
	c.wantAck("LDS l3")
}

// TestGRPCClient: a gRPC library requests resources by name, receives the config for gRPC, and
// interprets absence as "does not exist".
func TestGRPCClient(t *testing.T) {
	key := node.Key{ID: "default.web", Flavor: node.FlavorGRPC}
	a := startAgent(t, options{})
	a.Ready()
	c := a.sotw(&corev3.Node{Id: "default.web", UserAgentName: "gRPC Go",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.85.0"}})
	c.ask(lds, "svc")
	a.wait(func() bool { return len(a.Connected()) == 1 })
	if got := a.Connected()[0]; got != key {
		t.Fatalf("key %v, want %v", got, key)
	}
	a.push(config("LDS:svc=envoy")) // the Envoy of that name is a different node
	a.give(key, config("LDS:other=o1"))
	c.wantAck("LDS", "svc")
	a.give(key, config("LDS:other=o2", "LDS:svc=s1"))
	c.wantAck("LDS s1", "svc")
	a.give(key, config("LDS:other=o3", "LDS:svc=s1"))
	c.ask(cds, "c")
	c.wantAck("CDS", "c")
	c.ask(lds, "svc", "third")
	c.wantAck("LDS s1", "svc", "third")
	a.give(key, config("LDS:other=o2"))
	c.wantAck("LDS", "svc", "third")
	// An empty list is not a wildcard.
	c.ask(lds)
	a.give(key, config("LDS:other=o4", "CDS:c=c1"))
	c.wantAck("CDS c1", "c")
	if p := a.status("default.web"); p.Flavor != node.FlavorGRPC || p.UserAgent != "gRPC Go" ||
		p.Version != "1.85.0" || p.Delta {
		t.Errorf("status: %+v", p)
	}
}
