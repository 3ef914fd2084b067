package receive

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/accesslogtest"
)

// Test24Polite (case 24) checks that senders that close their connections in time lose nothing.
func Test24Polite(t *testing.T) {
	to := &accesslogtest.Collector{}
	r := receive(t, Options{To: &locked{to: to}, Drain: patience})
	const conns = 8
	var wg sync.WaitGroup
	var sent [conns]int
	for id := range conns {
		c := r.dial()
		closed := make(chan struct{})
		go func() {
			_, _ = c.Read(make([]byte, 1))
			close(closed)
		}()
		wg.Go(func() {
			defer c.Close()
			for {
				select {
				case <-closed:
					return
				default:
				}
				if _, err := io.WriteString(c, accesslogtest.Line(id, sent[id])); err != nil {
					t.Error(err)
					return
				}
				sent[id]++
			}
		})
	}
	accesslogtest.Eventually(t, "lines are written", func() bool { return r.Stats().Written > 2000 })
	r.end()
	wg.Wait()
	r.balance()
	got, all := strings.Count(to.String(), "\n"), 0
	for _, n := range sent {
		all += n
	}
	if s := r.Stats(); got != all || s.Unterminated != 0 || s.Abandoned != 0 || len(s.Dropped) != 0 {
		t.Errorf("%d lines are stored of %d; stats %+v", got, all, s)
	}
}

// Test24Impolite (case 24) checks that other senders are disconnected after the drain time, and
// that all received lines are written or counted.
func Test24Impolite(t *testing.T) {
	to := &accesslogtest.Collector{}
	r := receive(t, Options{To: &locked{to: to}, Drain: 100 * time.Millisecond})
	var wg sync.WaitGroup
	for id := range 4 {
		c := r.dial()
		wg.Go(func() {
			for n := 0; ; n++ {
				if _, err := io.WriteString(c, accesslogtest.Line(id, n)); err != nil {
					return
				}
			}
		})
	}
	accesslogtest.Eventually(t, "lines are written", func() bool { return r.Stats().Written > 2000 })
	r.end()
	wg.Wait()
	r.balance()
	if s := r.Stats(); uint64(strings.Count(to.String(), "\n")) != s.Written ||
		s.BytesIn < uint64(to.Len())-s.Unterminated {
		t.Errorf("stats %+v", s)
	}
}

// TestStopWhileTheDestinationWaits checks that a receiver stops although its file cannot be
// written, and that received lines are counted as dropped.
func TestStopWhileTheDestinationWaits(t *testing.T) {
	r := receive(t, Options{To: stuck{}, Drain: 50 * time.Millisecond})
	send(t, r.dial(), "one\ntwo\nhal")
	accesslogtest.Eventually(t, "the lines are read", func() bool { return r.Stats().In == 2 })
	if s := r.Stats(); s.InFlight != 2 || s.Written != 0 {
		t.Errorf("stats %+v", s)
	}
	r.end()
	r.balance()
	if s := r.Stats(); s.Dropped[accesslog.CauseStopped] != 3 {
		t.Errorf("stats %+v", s)
	}
}

// stuck blocks until ctx ends.
type stuck struct{}

func (stuck) Write(ctx context.Context, _ []byte) (int, error) {
	<-ctx.Done()
	return 0, context.Cause(ctx)
}
