package ads_test

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// TestInboundsAreReported checks when the inbound listeners of a client are reported: once it has
// acknowledged them with their routes, and as long as it has some form of them.
func TestInboundsAreReported(t *testing.T) {
	const one, two = "inbound:127.0.0.1:80", "inbound:127.0.0.1:81"
	reports := make(chan string, 16)
	a := servingWith(t, config("CDS:b=1", "LDS:"+one+"=r "+forHTTP, "LDS:out=1", "RDS:r=b"), options{
		Inbounds: func(ref node.Ref, p *access.Process, names []string) {
			if ref.NodeID() != "default.web" || p == nil || p.ID == "" {
				t.Errorf("the report of %v has the process %+v", ref, p)
			}
			reports <- strings.Join(names, " ")
		}})
	want := func(what, report string) {
		t.Helper()
		select {
		case got := <-reports:
			if got != report {
				t.Fatalf("%s: %q is reported, want %q", what, got, report)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: nothing is reported, want %q", what, report)
		}
	}
	none := func(what string) {
		t.Helper()
		a.wait(func() bool { return len(a.Progress()[0].Unanswered) == 0 })
		if len(reports) > 0 {
			t.Fatalf("%s: %q is reported", what, <-reports)
		}
	}
	connect := func() *deltaClient {
		return deltaOn(t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
	}
	c := connect()
	c.subscribe(cds)
	c.wantAck("CDS b=1")
	c.subscribe(lds)
	c.wantAck("LDS " + one + "=r " + forHTTP + " out=1")
	none("without the route")
	c.subscribe(rds, "r")
	c.wantAck("RDS r=b")
	want("with the route", one)

	next := config("CDS:b=1", "LDS:"+one+"=r "+forHTTP, "LDS:"+two+"=b "+forTCP, "LDS:out=2", "RDS:r=b")
	a.push(next)
	c.wantAck("LDS " + two + "=b " + forTCP + " out=2")
	want("another one", one+" "+two)
	a.push(config("CDS:b=1", "LDS:"+one+"=3", "LDS:out=2", "RDS:r=b"))
	c.wantAck("LDS " + one + "=3 -" + two)
	want("one is removed", one)

	has := versionsOf(config("LDS:"+one+"=2", "LDS:out=2"), lds)
	c = connect() // as after a restart of the agent: it has another form of the listener
	c.resume(cds, versionsOf(next, cds))
	c.resume(lds, has)
	resp := c.want("LDS " + one + "=3")
	c.nack(resp, one+": bad")
	want("it serves its other form", one)
}

// TestRejectedInbound checks that an Envoy that rejects one inbound listener of its first config is
// reported to serve the other one, although nothing of the response is sent again.
func TestRejectedInbound(t *testing.T) {
	const one, two = "inbound:127.0.0.1:80", "inbound:127.0.0.1:81"
	reports := make(chan string, 16)
	a := servingWith(t, config("CDS:b=1", "LDS:"+one+"=r "+forHTTP, "LDS:"+two+"=q "+forHTTP, "RDS:q=b", "RDS:r=b"),
		options{Inbounds: func(_ node.Ref, _ *access.Process, names []string) { reports <- strings.Join(names, " ") }})
	c := deltaOn(t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
	c.subscribe(cds)
	c.wantAck("CDS b=1")
	c.subscribe(lds)
	c.nack(c.want("LDS "+one+"=r "+forHTTP+" "+two+"=q "+forHTTP), "Error adding/updating listener(s) "+two+": bad")
	c.subscribe(rds, "r")
	c.wantAck("RDS r=b")
	select {
	case got := <-reports:
		if got != one {
			t.Errorf("%q is reported, want %q", got, one)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing is reported")
	}
}
