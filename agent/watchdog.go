package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// stuckAfter is how long a reconciliation may take before the agent counts as stuck.
const stuckAfter = 10 * time.Second

// watchdog tells the service manager that the agent works, for as long as no reconciliation is
// stuck, and logs where one that is stuck hangs.
type watchdog struct {
	busySince func() time.Time // start of the reconciliation under way, the zero time between two
	now       func() time.Time
	notify    func(state string)
	timeout   time.Duration // within which the service manager wants to be told; 0: it does not
	log       *slog.Logger

	logged time.Time // start of the last reconciliation that was logged
}

// run looks until ctx ends: every second, or as often as the service manager needs it.
func (w *watchdog) run(ctx context.Context) {
	every := time.Second
	if w.timeout > 0 {
		every = min(every, max(w.timeout/3, time.Millisecond))
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.look()
		}
	}
}

func (w *watchdog) look() {
	since, took := w.stuck()
	switch {
	case took == 0:
		if w.timeout > 0 {
			w.notify(daemon.SdNotifyWatchdog)
		}
	case !since.Equal(w.logged):
		w.logged = since
		w.log.Error("a reconciliation is stuck; the service manager is not told any more that the agent works",
			"since", since, "took", took, "stack", passStack())
	}
}

// stuck returns when a stuck reconciliation began and how long it has taken; 0 when none is stuck.
func (w *watchdog) stuck() (since time.Time, took time.Duration) {
	if since = w.busySince(); since.IsZero() {
		return since, 0
	}
	if took = w.now().Sub(since); took <= stuckAfter {
		return since, 0
	}
	return since, took
}

// reason says that a reconciliation is stuck; "" when none is.
func (w *watchdog) reason() string {
	_, took := w.stuck()
	if took == 0 {
		return ""
	}
	return fmt.Sprintf("one reconciliation takes %s already; restart the agent and report it", took.Round(time.Second))
}

// maxStacks bounds the stacks that are searched for the one of the reconciliation, in bytes.
const maxStacks = 16 << 20

// passStack returns the stack of the goroutine that makes reconciliations, "" when it cannot be
// told.
func passStack() string {
	for size := 1 << 20; size <= maxStacks; size *= 2 {
		all := make([]byte, size)
		n := runtime.Stack(all, true)
		for stack := range bytes.SplitSeq(all[:n], []byte("\n\n")) {
			if bytes.Contains(stack, []byte("(*Reconciler).pass(")) {
				return string(stack)
			}
		}
		if n < size {
			break
		}
	}
	return ""
}
