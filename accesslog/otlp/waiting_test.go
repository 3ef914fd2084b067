package otlp_test

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
	"github.com/nearside-mesh/nearside/accesslog/otlp"
	"github.com/nearside-mesh/nearside/accesslog/spool"
)

// TestOTLPWaits checks that a call waits until its route exists and allows it, and that a stopping
// relay answers calls that wait with a code after which clients send the records again.
func TestOTLPWaits(t *testing.T) {
	o, stop, call := relayWith(t, otlp.Options{Wait: time.Hour})
	asked := make(chan struct{}, 8)
	var open atomic.Bool
	route := func(authority string) otlp.Route {
		return otlp.Route{Authority: authority, Endpoint: accesslogtest.FreeAddress(t), Allow: func(otlp.Peer) error {
			asked <- struct{}{}
			if open.Load() {
				return nil
			}
			return errors.New("not yet")
		}}
	}
	answer := make(chan error, 1)
	go func() { _, err := call("web", logs(0, 3)); answer <- err }()
	if err := o.SetRoute(route("web")); err != nil {
		t.Fatal(err)
	}
	<-asked
	open.Store(true)
	o.Recheck()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if s := o.Stats()["web"]; s.In != 3 {
		t.Errorf("%+v", s)
	}
	open.Store(false)
	if err := o.SetRoute(route("other")); err != nil {
		t.Fatal(err)
	}
	for len(asked) > 0 { // all about the answered call
		<-asked
	}
	go func() { _, err := call("other", logs(0, 3)); answer <- err }()
	<-asked
	go stop()
	if err := <-answer; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

// TestOTLPAnswered checks that an answered record survives the loss of the relay's memory: it is in
// the spool, or has reached the endpoint.
func TestOTLPAnswered(t *testing.T) {
	e := newEndpoint(t)
	dir := filepath.Join(t.TempDir(), "spool")
	o, _, call := relay(t, otlp.Route{Authority: "web", Endpoint: e.addr, Allow: onlyMe, Spool: spool.Options{Dir: dir}})
	if _, err := call("web", logs(0, 10)); err != nil {
		t.Fatal(err)
	}
	if s := o.Stats()["web"]; s.Spooled != 10 || s.InFlight != 0 {
		t.Errorf("without an endpoint: %+v", s)
	}
	e.start()
	accesslogtest.Until(t, routeStats{o, "web"}, "exported", func(s accesslog.Stats) bool { return s.Written == 10 })
	if _, err := call("web", logs(10, 20)); err != nil {
		t.Fatal(err)
	}
	if s := o.Stats()["web"]; s.Written+s.Spooled != 20 {
		t.Errorf("with an endpoint: %+v", s)
	}
}
