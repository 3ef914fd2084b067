package ads_test

import (
	"strings"
	"testing"
)

// TestListenerKeepsOffABadCluster: while the new cluster of a listener is rejected, the listener
// keeps its old cluster, and the status reports it.
func TestListenerKeepsOffABadCluster(t *testing.T) {
	for _, kind := range bothKinds {
		t.Run(kind, func(t *testing.T) {
			a := serving(t, config("CDS:one=1", "LDS:l=l.one"))
			c := newWholeClient(t, a, kind, nil)
			c.until("the first config", func() bool { return c.line(lds) == "l=l.one" })
			c.rests()
			a.push(config("CDS:one=1", "CDS:other=1", "CDS:third=poison", "LDS:l=l.third"))
			c.until("the good cluster", func() bool { return strings.Contains(c.line(cds), "other=1") })
			c.rests()
			if c.line(lds) != "l=l.one" || c.line(cds) != "one=1 other=1" {
				t.Errorf("has %q, %q", c.line(cds), c.line(lds))
			}
			held := typeStatus(t, a.status("default.web"), lds).Held
			if len(held) != 1 || !strings.Contains(held[0].Reason,
				"it needs the cluster third, which is rejected: Invalid duration") || held[0].AcceptedVersion == "" {
				t.Errorf("held: %+v", held)
			}
			rejected := a.reached("default.web", 1).Rejected
			if len(rejected) != 2 || rejected[1].Cause != rejected[0].ID {
				t.Errorf("rejected: %+v", rejected)
			}
			a.push(config("CDS:one=1", "CDS:other=1", "CDS:third=1", "LDS:l=l.third"))
			c.until("the repaired cluster", func() bool {
				return c.line(cds) == "one=1 other=1 third=1" && c.line(lds) == "l=l.third"
			})
			a.reached("default.web", 2)
			if held := typeStatus(t, a.status("default.web"), lds).Held; len(held) != 0 {
				t.Errorf("held in the end: %+v", held)
			}
		})
	}
}

// TestListenerWaitsForItsCluster: a listener switches to a new cluster only after the client has
// acknowledged the cluster. A new listener waits for its cluster only while that is suspect.
func TestListenerWaitsForItsCluster(t *testing.T) {
	a := serving(t, config("CDS:one=1", "LDS:l=l.one"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS one=1")
	c.subscribe(lds)
	c.wantAck("LDS l=l.one")
	c.subscribe(rds, "x")
	c.wantAck("RDS -x")
	a.push(config("CDS:one=1", "CDS:two=1", "LDS:l=l.two", "LDS:m=m"))
	two := c.want("CDS two=1")
	c.wantAck("LDS m=m")
	if p := a.progress("default.web"); p.Answered == 1 {
		t.Error("answered while a listener waits")
	}
	c.ack(two)
	c.wantAck("LDS l=l.two")
	a.reached("default.web", 1)
	a.push(config("CDS:bad=poison", "CDS:one=1", "CDS:new=1", "CDS:two=1", "LDS:l=l.two", "LDS:m=m"))
	both := c.want("CDS bad=poison new=1")
	a.push(config("CDS:bad=poison", "CDS:one=1", "CDS:new=1", "CDS:two=1", "LDS:l=l.two", "LDS:m=m",
		"LDS:n=n.new"))
	c.wantAck("LDS n=n.new") // the cluster is not suspect
	a.push(config("CDS:bad=poison", "CDS:one=1", "CDS:new=1", "CDS:two=1", "LDS:l=l.two", "LDS:m=m"))
	c.wantAck("LDS -n")
	c.nack(both, outOfRange)
	bad := c.want("CDS bad=poison")
	a.push(config("CDS:bad=poison", "CDS:one=1", "CDS:new=1", "CDS:two=1", "LDS:k=k", "LDS:l=l.two", "LDS:m=m",
		"LDS:n=n.new"))
	c.wantAck("LDS k=k")
	c.nack(bad, outOfRange)
	c.wantAck("CDS new=1")
	c.wantAck("LDS n=n.new")
}

// TestListenerWaitsForNoOtherName: a listener waits only for the clusters to which it refers, not
// for one whose name is contained in theirs or in another field of the listener.
func TestListenerWaitsForNoOtherName(t *testing.T) {
	a := serving(t, config("CDS:backend-v2=1", "LDS:l=l.backend-v2"))
	c := a.delta("default.web")
	c.subscribe(cds)
	c.wantAck("CDS backend-v2=1")
	c.subscribe(lds)
	c.wantAck("LDS l=l.backend-v2")
	a.push(config("CDS:backend=poison", "CDS:backend-v2=1", "LDS:l=l.backend-v2.2"))
	c.nack(c.want("CDS backend=poison"), outOfRange)
	c.wantAck("LDS l=l.backend-v2.2")
	a.reached("default.web", 1)
	if held := typeStatus(t, a.status("default.web"), lds).Held; len(held) != 0 {
		t.Errorf("held: %+v", held)
	}
}

// TestClustersOfNoOtherNameAreRetained: a listener that drains retains only the clusters to which
// it refers.
func TestClustersOfNoOtherNameAreRetained(t *testing.T) {
	a, _ := draining(t, config("CDS:backend=1", "CDS:backend-v2=1", "LDS:l=l.backend-v2"))
	c := a.asEnvoy("CDS backend=1 backend-v2=1", "LDS l=l.backend-v2", "RDS -r", "r")
	a.push(config("CDS:new=1", "LDS:l=l.new"))
	c.wantAck("CDS new=1")
	c.wantAck("LDS l=l.new")
	c.wantAck("CDS -backend")
}
