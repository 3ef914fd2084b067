package drains_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/host/tcptable"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// world is a node with one Envoy.
type world struct {
	peer     access.Peer
	gone     bool
	settings api.DrainSettings
	gauges   api.DrainingListeners
	mute     bool // the admin interface does not respond
	pod      bool // the admin interface is only in the pod; the settings are known
	asked    int  // for settings
	open     []tcptable.Conn
	noTable  error
	accepted []*draft.Resource
	*drains.Drains
}

var key = node.Key{ID: "default.web", Flavor: node.FlavorEnvoy}

func newWorld() *world {
	w := &world{peer: access.Peer{Local: true, PID: 7},
		settings: api.DrainSettings{Time: 30 * time.Second, Strategy: api.Immediate}}
	w.Drains = drains.New(drains.Options{
		Peer:      func(node.Key) (access.Peer, bool) { return w.peer, !w.gone },
		Envoy:     func(string, access.Peer) drains.Envoy { return w },
		Listeners: func(node.Key) []*draft.Resource { return w.accepted },
		Sockets: func(int32) (*tcptable.Table, error) {
			return &tcptable.Table{Open: w.open}, w.noTable
		},
	})
	return w
}

// DrainSettings implements [drains.Envoy].
func (w *world) DrainSettings(context.Context) (api.DrainSettings, error) {
	if w.asked++; w.mute {
		return api.DrainSettings{}, errors.New("no such file")
	}
	return w.settings, nil
}

// Draining implements [drains.Envoy].
func (w *world) Draining(context.Context) (api.DrainingListeners, error) {
	if w.pod {
		return api.DrainingListeners{}, access.ErrPodAdmin
	}
	if w.mute {
		return api.DrainingListeners{}, errors.New("no such file")
	}
	return w.gauges, nil
}

func (w *world) left(t *testing.T, d rollout.Drain) drains.Old {
	t.Helper()
	<-time.After(time.Second) // with the fake clock
	return w.Measure(t.Context(), []drains.Question{{Key: key, Drain: d}})[0]
}

// connection returns a connection of a client to a local address.
func connection(local string, port uint16) tcptable.Conn {
	return tcptable.Conn{Local: netip.MustParseAddrPort(local),
		Remote: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), port)}
}

// TestSettings checks that each process is asked once, and that defaults replace unknown settings.
func TestSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		get := func() drains.Settings { return w.Settings(t.Context(), []node.Key{key})[key] }
		for range 2 {
			if s := get(); s.Time != 30*time.Second || s.Unknown != "" || w.asked != 1 {
				t.Errorf("%+v, asked %d times", s, w.asked)
			}
		}
		w.peer.PID, w.mute = 8, true
		for range 2 {
			if s := get(); s.DrainSettings != api.DefaultDrain || s.Unknown != "no such file" || w.asked != 2 {
				t.Errorf("%+v, asked %d times", s, w.asked)
			}
		}
		time.Sleep(time.Minute)
		w.mute = false
		if s := get(); s.Time != 30*time.Second || s.Unknown != "" || w.asked != 3 {
			t.Errorf("%+v, asked %d times", s, w.asked)
		}
		w.gone = true
		if s := get(); s.DrainSettings != api.DefaultDrain || s.Unknown != "it is not connected" {
			t.Errorf("%+v", s)
		}
		var none *drains.Drains
		if s := none.Settings(t.Context(), []node.Key{key})[key]; s.DrainSettings != api.DefaultDrain || s.Unknown == "" {
			t.Errorf("%+v", s)
		}
	})
}

// TestMeasure counts the old connections of a listener until they have ended.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := rollout.Drain{Since: time.Now(), Revision: 4, Listeners: []string{"inbound:10.0.0.1:80"}}
		w.gauges = api.DrainingListeners{Warming: 1}
		w.open = []tcptable.Conn{connection("10.0.0.1:80", 1), connection("10.0.0.1:80", 2), connection("10.0.0.1:81", 3)}
		if x := w.left(t, d); x.Ended || x.Connections != -1 || !strings.Contains(x.Reason, "new listeners wait") ||
			!x.Until.After(d.Since.Add(35*time.Second)) {
			t.Errorf("while new listeners warm: %+v", x)
		}
		w.gauges = api.DrainingListeners{Chains: 1}
		if x := w.left(t, d); x.Ended || x.Connections != 2 || x.Reason != "" {
			t.Errorf("two are open: %+v", x)
		}
		w.open = append(w.open[1:], connection("10.0.0.1:80", 4)) // a new one
		if x := w.left(t, d); x.Ended || x.Connections != 1 {
			t.Errorf("one is open: %+v", x)
		}
		w.open = []tcptable.Conn{connection("10.0.0.1:80", 4)}
		if x := w.left(t, d); !x.Ended {
			t.Errorf("none is open: %+v", x)
		}
		w.open = []tcptable.Conn{connection("10.0.0.1:80", 2)} // the client uses the port again
		if x := w.left(t, d); !x.Ended {
			t.Errorf("they have ended before: %+v", x)
		}
	})
}

// TestMeasureTheEnd checks that a drain ends when the Envoy drains nothing, or its time is over.
func TestMeasureTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := rollout.Drain{Since: time.Now(), Listeners: []string{"inbound:10.0.0.1:80"}}
		w.open = []tcptable.Conn{connection("10.0.0.1:80", 1)}
		if x := w.left(t, d); !x.Ended {
			t.Errorf("nothing drains: %+v", x)
		}
		w.gauges = api.DrainingListeners{Listeners: 1}
		d.Since = time.Now()
		if x := w.left(t, d); x.Ended || !x.Until.Equal(d.Since.Add(35*time.Second)) {
			t.Errorf("%+v", x)
		}
		time.Sleep(35 * time.Second)
		if x := w.left(t, d); !x.Ended {
			t.Errorf("its time is over: %+v", x)
		}
	})
}

// TestPod counts the old connections of an Envoy in a pod, which does not report what drains.
func TestPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.pod = true
		w.open = []tcptable.Conn{connection("10.0.0.1:80", 1)}
		d := rollout.Drain{Since: time.Now(), Listeners: []string{"inbound:10.0.0.1:80"}}
		time.Sleep(rollout.DrainSlack)
		if x := w.left(t, d); x.Connections != 1 || x.Reason != "" ||
			!x.Until.Equal(d.Since.Add(30*time.Second+rollout.DrainSlack)) {
			t.Errorf("%+v", x)
		}
		w.open = nil
		if x := w.left(t, d); !x.Ended {
			t.Errorf("%+v", x)
		}
	})
}

// TestNotMeasurable checks that connections that cannot be counted last until the end of the drain
// time.
func TestNotMeasurable(t *testing.T) {
	address := func(name, ip string, port uint32) *draft.Resource {
		b, err := proto.Marshal(
			&listenerv3.Listener{Name: name, Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: ip,
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return draft.NewResource(draft.RankListener, name, b)
	}
	for name, c := range map[string]struct {
		change    func(w *world, d *rollout.Drain)
		count     int
		reason    string
		drainTime time.Duration
	}{
		"redirected": {func(w *world, _ *rollout.Drain) {
			w.accepted = []*draft.Resource{address("inbound:passthrough:ipv4", "0.0.0.0", 15006),
				address("outbound:passthrough:ipv4", "0.0.0.0", 15001)}
			w.open = []tcptable.Conn{connection("10.0.0.1:15006", 1), connection("10.0.0.1:15001", 1)}
		}, 1, "", 30 * time.Second},
		"many listeners": {func(_ *world, d *rollout.Drain) { d.Listeners = nil }, -1, "too many listeners",
			30 * time.Second},
		"no address": {func(_ *world, d *rollout.Drain) { d.Listeners = []string{"mine"} }, -1,
			`listener "mine" has no address`, 30 * time.Second},
		"removed redirection": {func(_ *world, d *rollout.Drain) { d.Listeners = []string{"outbound:passthrough:ipv4"} }, -1,
			"was removed", 30 * time.Second},
		"no table": {func(w *world, _ *rollout.Drain) { w.noTable = errors.New("hidden") }, -1, "counted: hidden",
			30 * time.Second},
		"foreign process": {func(w *world, _ *rollout.Drain) { w.peer.PID = 0 }, -1, "process of its Envoy is unknown",
			30 * time.Second},
		"previous agent": {func(_ *world, d *rollout.Drain) { d.Unsure = true }, -1, "a previous agent", 30 * time.Second},
		"mute": {func(w *world, _ *rollout.Drain) { w.mute = true }, -1, "may not be in use yet",
			600 * time.Second},
		"not connected": {func(w *world, _ *rollout.Drain) { w.gone = true }, -1, "not connected", 600 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.gauges.Chains = 1
				d := rollout.Drain{Since: time.Now(), Listeners: []string{"inbound:10.0.0.1:80"}}
				w.open = []tcptable.Conn{connection("10.0.0.1:80", 1)}
				c.change(w, &d)
				x := w.left(t, d)
				if x.Ended || x.Connections != c.count || !strings.Contains(x.Reason, c.reason) ||
					!x.Until.Equal(d.Since.Add(c.drainTime+rollout.DrainSlack)) {
					t.Errorf("%+v, want %+v", x, c)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.mute = true
		d := rollout.Drain{Since: time.Now(), Listeners: []string{"inbound:10.0.0.1:80"}}
		w.open = []tcptable.Conn{connection("10.0.0.1:80", 1)}
		time.Sleep(rollout.DrainSlack)
		if x := w.left(t, d); x.Connections != 1 {
			t.Errorf("an Envoy without admin interface, after the slack: %+v", x)
		}
		w.open = nil
		if x := w.left(t, d); !x.Ended {
			t.Errorf("its connection has ended: %+v", x)
		}
	})
}
