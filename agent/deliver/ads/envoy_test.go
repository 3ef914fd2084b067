package ads_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestEndpointsWhileWarming: while a cluster warms, Envoy pauses cluster discovery, including
// acknowledgements, until the endpoints arrive. So endpoints must never wait for that
// acknowledgement.
func TestEndpointsWhileWarming(t *testing.T) {
	before := config("CDS:a=1", "EDS:a=1", "LDS:l=1")
	added := config("CDS:a=1", "CDS:b=1", "EDS:a=1", "EDS:b=1", "LDS:l=1")
	more := config("CDS:a=1", "CDS:b=1", "CDS:c=1", "EDS:a=1", "EDS:b=1", "EDS:c=1", "LDS:l=2")
	t.Run("delta", func(t *testing.T) {
		a := serving(t, before)
		c := a.delta("default.web")
		c.subscribe(cds)
		c.wantAck("CDS a=1")
		c.subscribe(eds, "a")
		c.wantAck("EDS a=1")
		c.subscribe(lds)
		c.wantAck("LDS l=1")
		a.push(added)
		warming := c.want("CDS b=1")
		a.push(more) // the next change arrives before the client has finished
		c.subscribe(eds, "b")
		c.wantAck("EDS b=1")
		c.ack(warming)
		c.wantAck("CDS c=1")
		c.wantAck("LDS l=2")
	})
	t.Run("sotw", func(t *testing.T) {
		a := serving(t, before)
		c := a.sotw(nodeOf("default.web"))
		c.ask(cds)
		c.wantAck("CDS 1")
		c.ask(eds, "a")
		c.wantAck("EDS 1", "a")
		c.ask(lds)
		c.wantAck("LDS 1")
		a.push(added)
		c.version[cds] = c.want("CDS 1 1").GetVersionInfo()
		a.push(more)
		c.ask(eds, "a", "b")
		c.wantAck("EDS 1", "a", "b")
		c.ask(cds)
		c.wantAck("CDS 1 1 1")
		c.wantAck("LDS 2")
	})
}

// TestReconnectWarms: a proxy that reconnects requests all types at once, before it has received
// the current form of a changed cluster. It warms that cluster again, so it needs the endpoints
// although it lists them.
func TestReconnectWarms(t *testing.T) {
	old := config("CDS:a=a1", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1")
	t.Run("delta", func(t *testing.T) {
		a := serving(t, config("CDS:a=a2", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1"))
		c := a.delta("default.web")
		c.resume(cds, versionsOf(old, cds))
		c.resume(eds, versionsOf(old, eds), "a", "b")
		c.wantAck("CDS a=a2")
		c.wantAck("EDS a=ea1")
		a.push(config("CDS:a=a2", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb2"))
		c.wantAck("EDS b=eb2")
	})
	t.Run("sotw", func(t *testing.T) {
		a := serving(t, old)
		c := a.sotw(nodeOf("default.web"))
		c.ask(cds)
		c.wantAck("CDS a1 b1")
		c.ask(eds, "a", "b")
		c.wantAck("EDS ea1 eb1", "a", "b")
		a.stop()

		b := serving(t, config("CDS:a=a2", "CDS:b=b1", "EDS:a=ea1", "EDS:b=eb1"))
		d := b.sotw(nodeOf("default.web"))
		d.version = c.version
		d.ask(cds)
		d.ask(eds, "a", "b")
		d.wantAck("CDS a2 b1")
		d.wantAck("EDS ea1 eb1", "a", "b")
	})
}

// TestSuspectsAreCleared: a message that names no resource makes all resources suspect. A proxy
// that reconnects meanwhile receives the resources on trial, and finally all good ones.
func TestSuspectsAreCleared(t *testing.T) {
	a := serving(t, config("LDS:bad=1", "LDS:good=1"))
	c := a.delta("default.web")
	c.subscribe(lds)
	c.nack(c.want("LDS bad=1 good=1"), "Proto constraint validation failed")
	c.want("LDS bad=1")
	d := a.delta("default.web")
	d.subscribe(lds)
	d.nack(d.want("LDS bad=1"), "Proto constraint validation failed")
	d.wantAck("LDS good=1")
	a.push(config("LDS:bad=2", "LDS:good=1"))
	d.wantAck("LDS bad=2")
}

// TestVerdictsOfOthers: a rejection by one peer does not count against another peer that later uses
// the node id, nor against another version of the client.
func TestVerdictsOfOthers(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := newStreamLog()
	a := startAgent(t, options{Handler: log}, tcp)
	a.Ready()
	reject := func(c *deltaClient) {
		t.Helper()
		c.subscribe(lds)
		<-log.opened
		a.push(config("LDS:a=1", "LDS:b=1"))
		c.nack(c.want("LDS a=1 b=1"), "b: bad")
		c.subscribe(rds, "x")
		c.wantAck("RDS -x")
		if err := c.str.CloseSend(); err != nil {
			t.Fatal(err)
		}
		<-log.closed
	}
	reject(deltaOn(t, dialTo(t, "passthrough:///"+tcp.Addr().String()), nodeOf("default.web")))
	if held := typeStatus(t, a.status("default.web"), lds).Held; len(held) != 1 {
		t.Errorf("held: %+v", held)
	}
	reject(a.delta("default.web"))

	newer := deltaOn(t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: "1.37.0"}})
	newer.subscribe(lds)
	<-log.opened
	a.push(config("LDS:a=1", "LDS:b=1"))
	newer.wantAck("LDS a=1 b=1")
}

// TestSotwToWildcard: a client subscribes to single names and then to all.
func TestSotwToWildcard(t *testing.T) {
	a := serving(t, config("LDS:a=a1", "LDS:b=b1", "CDS:c=c1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(lds, "a")
	c.wantAck("LDS a1", "a")
	c.ask(lds, "*")
	c.wantAck("LDS a1 b1", "*")
	c.ask(lds, "a", "*") // subscribes to nothing new but requests a
	c.wantAck("LDS a1 b1", "a", "*")
	a.push(config("LDS:a=a1", "LDS:b=b2", "CDS:c=c1"))
	c.wantAck("LDS a1 b2", "a", "*")
}

// TestNoNames: an empty list means all only for listeners and clusters.
func TestNoNames(t *testing.T) {
	a := serving(t, config("CDS:c=c1", "EDS:c=ec1", "LDS:l=l1", "RDS:r=r1"))
	c := a.sotw(nodeOf("default.web"))
	c.ask(eds)
	c.ask(rds)
	c.ask(lds)
	c.wantAck("LDS l1")
	c.ask(eds, "c")
	c.wantAck("EDS ec1", "c")
	d := a.delta("default.web")
	d.subscribe(eds)
	d.subscribe(rds)
	d.subscribe(lds)
	d.wantAck("LDS l=l1")
}

// TestGivenUpEarly: a name that is unsubscribed before there is a config gets no response.
func TestGivenUpEarly(t *testing.T) {
	log := newStreamLog()
	a := startAgent(t, options{Handler: log})
	c := a.delta("default.web")
	c.subscribe(eds, "a")
	<-log.opened
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesUnsubscribe: []string{"a"}})
	c.subscribe(eds, "b")
	c.subscribe("type.googleapis.com/Unknown", "x")
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesSubscribe: []string{"d"},
		ResourceNamesUnsubscribe: []string{"b"}})
	c.subscribe(lds)
	// Wait until all requests have arrived.
	a.wait(func() bool { return len(a.Connected()) == 1 && len(a.status("default.web").Types) == 2 })
	a.Ready()
	a.push(config("LDS:l=1"))
	c.wantAck("EDS -d")
	c.wantAck("LDS l=1")
}

// TestClosedBeforeChanged: a reader of the nodes that reacts to a change finds the handler up to
// date.
func TestClosedBeforeChanged(t *testing.T) {
	var mu sync.Mutex
	var order []string
	changes := make(chan struct{}, 10)
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
		changes <- struct{}{}
	}
	a := startAgent(t, options{Handler: orderLog(note), Changed: func() { note("changed") }})
	a.Ready()
	c := a.delta("default.web")
	c.subscribe(lds)
	<-changes
	<-changes
	if err := c.str.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-changes
	<-changes
	if want := []string{"opened", "changed", "closed", "changed"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

type orderLog func(string)

func (l orderLog) Opened(access.Stream) error { l("opened"); return nil }
func (l orderLog) Closed(access.Stream)       { l("closed") }

// TestRefusedIsOver: a refused stream leaves nothing behind, such as the timer of its grace period.
func TestRefusedIsOver(t *testing.T) {
	reg := prometheus.NewRegistry()
	var a *agent
	refuse := true
	a = startAgent(t,
		options{Registry: reg, UnknownGrace: 20 * time.Millisecond, Handler: onOpen(func(s access.Stream) error {
			a.give(s.Key, config("LDS:l=1"))
			a.give(s.Key, nil)
			if refuse {
				return status.Error(codes.FailedPrecondition, "no")
			}
			return nil
		})})
	a.Ready()
	first := a.delta("default.web")
	first.subscribe(lds)
	first.end(codes.FailedPrecondition, "no")
	refuse = false
	second := a.delta("default.other")
	second.subscribe(lds)
	second.end(codes.NotFound, "default.other") // after the grace period of the first
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "nearside_xds_streams_refused_total" && m.GetLabel()[0].GetValue() == "unknown" &&
				m.GetCounter().GetValue() != 1 {
				t.Errorf("%v streams ended as unknown, want 1", m.GetCounter().GetValue())
			}
		}
	}
}

// TestLongNames: the total length of names is limited, also over many requests. Unsubscribed names
// no longer count.
func TestLongNames(t *testing.T) {
	a := startAgent(t, options{}) // not ready, so that nothing is sent
	c := a.delta("default.web")
	long := func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 3<<20) }
	for i := range 10 {
		c.subscribe(rds, long(i))
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: rds, ResourceNamesUnsubscribe: []string{long(i)}})
	}
	c.subscribe(lds)
	// The stream is still open.
	a.wait(func() bool { return len(a.Connected()) == 1 && len(a.status("default.web").Types) == 2 })
	for i := range 10 {
		if c.str.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: rds, ResourceNamesSubscribe: []string{long(i)}}) != nil {
			break
		}
	}
	c.end(codes.ResourceExhausted, "bytes")
}

// asEnvoy connects a client that identifies itself as Envoy and has everything of a config.
func (a *agent) asEnvoy(cdsLine, ldsLine, rdsLine string, routes ...string) *deltaClient {
	a.t.Helper()
	c := deltaOn(a.t, a.dial(), &corev3.Node{Id: "default.web", UserAgentName: "envoy"})
	c.subscribe(cds)
	c.wantAck(cdsLine)
	c.subscribe(lds)
	c.wantAck(ldsLine)
	c.subscribe(rds, routes...)
	c.wantAck(rdsLine)
	return c
}

// TestRoutesWaitForWarmClusters: Envoy acknowledges a new cluster when it is warm, and until then
// answers requests to it with 503.
func TestRoutesWaitForWarmClusters(t *testing.T) {
	a := serving(t, config("CDS:a=1", "LDS:l=1", "RDS:r=a"))
	c := a.asEnvoy("CDS a=1", "LDS l=1", "RDS r=a", "r")
	a.push(config("CDS:a=1", "CDS:b=1", "LDS:l=b", "RDS:r=b"))
	warming := c.want("CDS b=1")
	c.subscribe(eds, "x")
	c.wantAck("EDS -x") // neither listeners nor routes precede it
	c.ack(warming)
	c.wantAck("LDS l=b")
	c.wantAck("RDS r=b")
	// If the client already has a cluster, the old form serves requests while the new one warms.
	a.push(config("CDS:a=2", "CDS:b=1", "LDS:l=b", "RDS:r=b2"))
	warming = c.want("CDS a=2")
	c.wantAck("RDS r=b2")
	c.ack(warming)
}

// TestWarmWaitIsBounded: a cluster that never warms does not block other clusters' routes forever.
func TestWarmWaitIsBounded(t *testing.T) {
	a := servingWith(t, config("CDS:a=1", "LDS:l=1", "RDS:r=a"), options{WarmWait: 50 * time.Millisecond})
	c := a.asEnvoy("CDS a=1", "LDS l=1", "RDS r=a", "r")
	a.push(config("CDS:a=1", "CDS:b=1", "LDS:l=1", "RDS:r=b"))
	c.want("CDS b=1")
	c.wantAck("RDS r=b")
}

// TestClustersStayWhileListenersDrain: connections stay on the old filter chains of a listener, so
// the clusters of these chains must remain.
func TestClustersStayWhileListenersDrain(t *testing.T) {
	now := time.Now()
	var clock atomic.Int64
	a := servingWith(t, config("CDS:a=1", "CDS:other=1", "CDS:via=1", "LDS:l=a,r", "RDS:r=via"), options{
		DrainTime: time.Minute, Now: func() time.Time { return now.Add(time.Duration(clock.Load())) },
	})
	c := a.asEnvoy("CDS a=1 other=1 via=1", "LDS l=a,r", "RDS r=via", "r")
	after := config("CDS:new=1", "LDS:l=new")
	a.push(after)
	c.wantAck("CDS new=1")
	c.wantAck("LDS l=new")
	c.wantAck("CDS -other") // no chain referred to it: a belongs to the old chain, and via to its routes
	a.wait(func() bool { return a.status("default.web").InSync })
	clock.Store(int64(2 * time.Minute))
	next := config("CDS:new=2", "LDS:l=new")
	a.push(next)
	c.wantAck("CDS new=2")
	c.wantAck("RDS -r")
	c.wantAck("CDS -a -via")
}

// TestNothingDrainsInAnEnvoyThatStarts: it receives exactly the config.
func TestNothingDrainsInAnEnvoyThatStarts(t *testing.T) {
	a := servingWith(t, config("CDS:a=1", "LDS:l=a"), options{DrainTime: time.Minute})
	c := a.asEnvoy("CDS a=1", "LDS l=a", "RDS -r", "r")
	a.push(config("CDS:b=1", "LDS:l=b"))
	c.wantAck("CDS b=1")
	c.wantAck("LDS l=b")
	if err := c.str.CloseSend(); err != nil {
		t.Fatal(err)
	}
	a.asEnvoy("CDS b=1", "LDS l=b", "RDS -r", "r")
}
