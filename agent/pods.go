package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/pods"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// podXDSName is the name of the xDS socket in the directory of a pod. The OTLP socket and the FIFOs
// have the same names as below paths.run.
const podXDSName = "xds.sock"

// openPods serves the sockets of registered pods, and returns the listener of their xDS sockets. It
// is called before unused sockets of the holder are released.
func (a *Agent) openPods() []net.Listener {
	if a.pods == nil {
		return nil
	}
	a.pods.Scan()
	return []net.Listener{a.pods.Listener(0)}
}

// newPods creates the server of pods, if xds.pods is set. It opens nothing.
func (a *Agent) newPods(cfg *config.Config) {
	if cfg.XDS.Pods == "" {
		return
	}
	o := pods.Options{Dir: cfg.XDS.Pods, Sockets: []string{podXDSName, otlpSocketName}, Owner: os.Geteuid(), Log: a.log,
		Changed: func() { a.reconciler.Trigger() }}
	if a.held != nil {
		o.Holder = podSockets{a.held}
	}
	a.pods = pods.New(o)
}

// runPods serves pods until ctx ends.
func (a *Agent) runPods(ctx context.Context) error {
	if a.pods == nil {
		return nil
	}
	return a.pods.Run(ctx)
}

// podSockets adapts the holder to [pods.Holder].
type podSockets struct{ *heldSockets }

// Take implements [pods.Holder].
func (h podSockets) Take(path string) net.Listener {
	name := heldUnix(hold.InPrefix, path)
	l := h.take(name)
	if l != nil {
		h.remember(name, path)
	}
	return l
}

// Add implements [pods.Holder].
func (h podSockets) Add(path string, l *net.UnixListener) { h.addUnix(hold.InPrefix, path, l) }

// Drop implements [pods.Holder].
func (h podSockets) Drop(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, at := range h.files {
		if at != path {
			continue
		}
		delete(h.files, name)
		if err := h.holder.Release(name); err != nil {
			h.log.Warn("the holder still holds the socket of a pod that is gone", "path", path, "error", err)
		}
	}
}

// podsCheck reports pods that are not served. They do not affect the readiness of others.
func (a *Agent) podsCheck() []api.Check {
	if a.pods == nil {
		return nil
	}
	s := a.pods.State()
	c := api.Check{Name: "pods", OK: true, Degraded: true}
	switch {
	case s.Broken != nil:
		c.Error, c.Reason = true, s.Broken.Error()
	case len(s.Refused) > 0:
		const most = 5
		shown := s.Refused[:min(len(s.Refused), most)]
		c.Error, c.Reason = true, "xds.pods: refused registrations: "+strings.Join(shown, "; ")
		if n := len(s.Refused) - len(shown) + s.More; n > 0 {
			c.Reason += plural.Form(n, "; and 1 more", "; and %d more")
		}
	default:
		c.Degraded, c.Reason = false, fmt.Sprintf("%s served over their own sockets", plural.Count(s.Served, "pod"))
	}
	return []api.Check{c}
}
