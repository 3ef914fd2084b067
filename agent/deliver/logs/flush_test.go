package logs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestFlush checks that the Envoy of one proxy flushes its logs before its FIFOs are read, and that
// other proxies are not affected.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		w := newWorld(t, func(w *world, o *logs.Options) {
			o.Reopen = func(_ context.Context, id string) error { w.note("reopen %s", id); return fail }
		})
		stop := w.run()
		w.Prepare(key("web"), []draft.Pipe{tcp("a", "one:1")})
		w.Prepare(key("pay"), []draft.Pipe{tcp("b", "one:1")})
		synctest.Wait()
		w.take()
		if known, err := w.Manager.Flush(t.Context(), "default", "web"); !known || err != nil {
			t.Errorf("%v, %v", known, err)
		}
		if got := w.take(); got != "reopen default.web; read default.web" {
			t.Errorf("called: %s", got)
		}
		for _, name := range []string{"nobody", ""} {
			if known, err := w.Manager.Flush(t.Context(), "default", name); known || err != nil {
				t.Errorf("%q: %v, %v", name, known, err)
			}
		}
		if known, _ := w.Manager.Flush(t.Context(), "other", "web"); known {
			t.Error("the proxy of another mesh is known")
		}
		if got := w.take(); got != "" {
			t.Errorf("called for proxies without FIFOs: %s", got)
		}
		fail = errors.New("no answer")
		if known, err := w.Manager.Flush(t.Context(), "default", "pay"); !known || !errors.Is(err, fail) {
			t.Errorf("%v, %v", known, err)
		}
		if got := w.take(); got != "reopen default.pay" {
			t.Errorf("called: %s", got)
		}
		w.take()
		fail = access.ErrPodAdmin // it flushes by itself
		began := time.Now()
		if known, err := w.Manager.Flush(t.Context(), "default", "pay"); !known || err != nil {
			t.Errorf("%v, %v", known, err)
		}
		if got := w.take(); got != "reopen default.pay; read default.pay" || time.Since(began) < time.Second {
			t.Errorf("called after %v: %s", time.Since(began), got)
		}
		stop()
	})
}
