package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

func proxyOf(id string, pid int32) api.ProxyStatus {
	return api.ProxyStatus{NodeID: id, Flavor: node.FlavorEnvoy, Streams: 1, Peer: access.Peer{Local: true, PID: pid}}
}

// TestRefusedCounts checks the counters when Envoys connect, disconnect, and restart.
func TestRefusedCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxies := []api.ProxyStatus{proxyOf("default.web", 1), proxyOf("default.api", 2)}
		says := map[string]uint64{"default.web": 3, "default.api": 4}
		asked := 0
		var mu sync.Mutex
		r := newRefused(func() []api.ProxyStatus { return proxies }, "", slog.New(slog.DiscardHandler))
		r.ask = func(_ context.Context, p *api.ProxyStatus) (api.ProxyCounts, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			n := says[p.NodeID]
			return api.ProxyCounts{Refused: n, WritesFailed: 2 * n, ReopensFailed: 3 * n}, nil
		}
		read := func(want string) {
			t.Helper()
			counts, total := r.read()
			of := map[string]uint64{}
			for id, c := range counts {
				if of[id] = c.Refused; c.WritesFailed != 2*c.Refused || c.ReopensFailed != 3*c.Refused {
					t.Errorf("%s: %+v", id, c)
				}
			}
			if total.WritesFailed != 2*total.Refused || total.ReopensFailed != 3*total.Refused {
				t.Errorf("in all %+v", total)
			}
			if got := fmt.Sprint(of, total.Refused); got != want {
				t.Errorf("%s; want %s", got, want)
			}
		}
		read("map[default.api:4 default.web:3] 7")
		says["default.web"] = 5
		read("map[default.api:4 default.web:3] 7") // before the next query is due
		if asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
		time.Sleep(refusedFor)
		read("map[default.api:4 default.web:5] 9")
		proxies[0].Peer.PID, says["default.web"] = 9, 6 // counts from 0 after a restart
		time.Sleep(refusedFor)
		read("map[default.api:4 default.web:6] 15")
		proxies = proxies[:1]
		time.Sleep(refusedFor)
		read("map[default.web:6] 15")
		proxies[0].Flavor = node.FlavorGRPC
		time.Sleep(refusedFor)
		read("map[] 15")
	})
}

// TestFailingLogs checks when an Envoy counts as one that fails to write access logs.
func TestFailingLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, counts := proxyOf("default.web", 1), api.ProxyCounts{}
		r := newRefused(func() []api.ProxyStatus { return []api.ProxyStatus{web} }, "", slog.New(slog.DiscardHandler))
		r.ask = func(context.Context, *api.ProxyStatus) (api.ProxyCounts, error) { return counts, nil }
		for i, step := range []struct {
			written, failed, reopened uint64
			want                      bool
		}{
			{0, 2, 0, true}, {0, 2, 0, true}, {1, 2, 0, false}, {2, 2, 0, false}, {3, 4, 0, true}, {3, 4, 0, true},
			{4, 4, 0, false}, {4, 4, 1, true}, {5, 4, 1, false},
		} {
			counts = api.ProxyCounts{WritesDone: step.written, WritesFailed: step.failed, ReopensFailed: step.reopened}
			if of, _ := r.read(); of["default.web"].Failing != step.want {
				t.Errorf("step %d: failing: %t", i, !step.want)
			}
			time.Sleep(refusedFor)
		}
		web.Peer.PID, counts = 2, api.ProxyCounts{WritesDone: 9, WritesFailed: 1} // failed before the agent asked
		if of, _ := r.read(); of["default.web"].Failing {
			t.Error("failing although writes have succeeded")
		}
	})
}

// TestRefusedByMany connects more Envoys without responses than can be queried at the same time.
func TestRefusedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var proxies []api.ProxyStatus
		for i := range 100 {
			proxies = append(proxies, proxyOf(fmt.Sprintf("default.a%d", i), int32(i+1)))
		}
		good := proxyOf("default.z", 1000)
		var logs bytes.Buffer
		r := newRefused(func() []api.ProxyStatus { return append(proxies[:len(proxies):len(proxies)], good) }, "",
			slog.New(slog.NewTextHandler(&logs, nil)))
		r.ask = func(_ context.Context, p *api.ProxyStatus) (api.ProxyCounts, error) {
			if p.NodeID == good.NodeID {
				return api.ProxyCounts{Refused: 1}, nil
			}
			time.Sleep(time.Second)
			return api.ProxyCounts{}, errors.New("no answer")
		}
		for range 200 {
			began := time.Now()
			r.read()
			if d := time.Since(began); d > 3*time.Second {
				t.Fatalf("reading took %v", d)
			}
			time.Sleep(refusedFor)
		}
		if of, total := r.read(); of[good.NodeID].Refused != 1 || total.Refused != 1 || len(of) != 1 {
			t.Errorf("%v, %v in all", of, total)
		}
		if n := strings.Count(logs.String(), "does not report refused connections"); n != len(proxies) {
			t.Errorf("reported %d times, want once for each of %d", n, len(proxies))
		}
	})
}

// TestPodsReportNothing checks that the log has no line for Envoys in pods, whose counters no user
// can make available to the agent.
func TestPodsReportNothing(t *testing.T) {
	var logs bytes.Buffer
	r := newRefused(func() []api.ProxyStatus { return []api.ProxyStatus{proxyOf("default.web-0.shop", 1)} }, "",
		slog.New(slog.NewTextHandler(&logs, nil)))
	r.ask = func(context.Context, *api.ProxyStatus) (api.ProxyCounts, error) {
		return api.ProxyCounts{}, access.ErrPodAdmin
	}
	if of, _ := r.read(); len(of) > 0 || logs.Len() > 0 {
		t.Errorf("%v %s", of, &logs)
	}
}
