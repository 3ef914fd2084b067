package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/nearside-mesh/nearside/rotation"
)

// stuckAfter is how long a pass may take before the agent counts as stuck.
const stuckAfter = 10 * time.Second

// watchdog notifies the service manager while no pass is stuck, and logs the stack of a stuck pass.
type watchdog struct {
	busySince func() time.Time // start of the current pass; zero between passes
	now       func() time.Time
	notify    func(state string)
	timeout   time.Duration // watchdog timeout of the service manager; 0: none
	log       *slog.Logger

	logged time.Time // start of the last logged pass
}

// run checks until ctx ends, at least every second.
func (w *watchdog) run(ctx context.Context) {
	every := time.Second
	if w.timeout > 0 {
		every = min(every, max(w.timeout/3, time.Millisecond))
	}
	t := time.NewTimer(rotation.NextTick(every))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(rotation.NextTick(every))
			w.look()
		}
	}
}

func (w *watchdog) look() {
	since, elapsed := w.stuck()
	switch {
	case elapsed == 0:
		if w.timeout > 0 {
			w.notify(daemon.SdNotifyWatchdog)
		}
	case !since.Equal(w.logged):
		w.logged = since
		w.log.Error("a reconciliation is stuck; the service manager is not told any more that the agent works",
			"since", since, "took", elapsed, "stack", passStack())
	}
}

// stuck returns the start and the duration of a stuck pass, or 0.
func (w *watchdog) stuck() (since time.Time, elapsed time.Duration) {
	if since = w.busySince(); since.IsZero() {
		return since, 0
	}
	if elapsed = w.now().Sub(since); elapsed <= stuckAfter {
		return since, 0
	}
	return since, elapsed
}

// reason says that a pass is stuck, or returns "".
func (w *watchdog) reason() string {
	_, elapsed := w.stuck()
	if elapsed == 0 {
		return ""
	}
	return fmt.Sprintf("one reconciliation takes %s already; restart the agent and report it", elapsed.Round(time.Second))
}

// maxStacks bounds the stacks to search, in bytes.
const maxStacks = 16 << 20

// passStack returns the stack of the goroutine that runs passes, or "" if it is not found.
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
