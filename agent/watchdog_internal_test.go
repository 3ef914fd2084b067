package agent

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// oneProxy is a publisher with one connected proxy.
type oneProxy struct{}

func (oneProxy) Connected() []node.Key { return []node.Key{{ID: "default.web"}} }

func (oneProxy) Waiting() map[node.Key]time.Time { return nil }

func (oneProxy) LastStream() uint64 { return 0 }

func (oneProxy) Listeners(node.Key) []*draft.Resource { return nil }

func (oneProxy) Publish(map[node.Key]rollout.Config) {}

// TestWatchdog checks a pass that hangs. After ten seconds the agent must stop notifying the
// service manager, liveness must fail with the reason, and the stack must be logged once. When the
// pass ends, everything must return to normal.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		list, faults := kinds.Registry().Decode("", []byte("{type: Mesh, name: default}\n---\n{type: Dataplane, mesh: "+
			"default, name: web, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: web}}]}}\n"))
		if err := faults.Err(); err != nil {
			t.Fatal(err)
		}
		batch := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true}
		for _, r := range list {
			batch.Ops = append(batch.Ops, store.Op{Put: r})
		}
		if _, err := s.Apply(batch); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		r := reconcile.New(reconcile.Options{Store: s, Publisher: oneProxy{}, Generate: func(in generate.Input,
			prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
			<-release
			return generate.Generate(in, prev, memo)
		}})
		var log bytes.Buffer
		var reported atomic.Int64
		w := &watchdog{busySince: r.BusySince, now: time.Now, timeout: 3 * time.Second,
			log: slog.New(slog.NewTextHandler(&log, nil)), notify: func(state string) {
				if reported.Add(1); state != "WATCHDOG=1" {
					t.Errorf("it is told %q", state)
				}
			}}
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx)
		after := func(d time.Duration, wantTold int64, wantStuck bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if n := reported.Load(); n != wantTold || (w.reason() != "") != wantStuck {
				t.Errorf("told %d times, want %d; liveness says %q", n, wantTold, w.reason())
			}
		}
		after(5*time.Second+time.Millisecond, 5, false)
		go r.Pass()
		after(9*time.Second, 14, false)
		after(20*time.Second, 15, true)
		if !strings.Contains(w.reason(), "one reconciliation takes 29s already") {
			t.Errorf("liveness says %q", w.reason())
		}
		if n := strings.Count(log.String(), "a reconciliation is stuck"); n != 1 ||
			!strings.Contains(log.String(), "TestWatchdog.func1.1") {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		close(release)
		after(3*time.Second, 18, false)
		cancel()
		synctest.Wait()

		// A service manager without a watchdog receives no notifications.
		ctx, cancel = context.WithCancel(t.Context())
		w.timeout = 0
		go w.run(ctx)
		after(3*time.Second, 18, false)
		cancel()
		synctest.Wait()
	})
}
