package agent

import (
	"net"
	"os"
	"path/filepath"

	"github.com/nearside-mesh/nearside/accesslog"
	"github.com/nearside-mesh/nearside/accesslog/fifo"
	"github.com/nearside-mesh/nearside/agent/deliver/logs"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/hold"
	"github.com/nearside-mesh/nearside/agent/host/pods"
)

// podXDSName is the name of the xDS socket in the directory of a pod. The OTLP socket and the FIFOs
// have the same names as below paths.run.
const podXDSName = "xds.sock"

// newPods creates the server of pods, if xds.pods is set. It opens nothing.
func (a *Agent) newPods(cfg *config.Config) {
	if cfg.XDS.Pods == "" {
		return
	}
	o := pods.Options{Dir: cfg.XDS.Pods, Sockets: []string{podXDSName, otlpSocketName}, Owner: os.Geteuid(), Log: a.log,
		Changed: func() { a.reconciler.Trigger() }, Registry: a.deps.Metrics}
	if a.held != nil {
		o.Holder = podSockets{a.held}
	}
	a.pods = pods.New(o)
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

// openFIFOs opens the FIFOs of Envoys, and those of pods in a private directory.
func (a *Agent) openFIFOs(o fifo.Options, podDir string) (logs.Pipes, error) {
	p, err := fifo.Open(o)
	if err != nil || a.pods == nil {
		return p, err
	}
	own := o
	own.Dir, own.Private, own.Links = podDir, true, a.pods
	own.Found = func(path string, labels map[string]string) accesslog.Destination {
		return o.Found(filepath.Join(o.Dir, filepath.Base(path)), labels) // as in configs
	}
	pods, err := fifo.Open(own)
	if err != nil {
		p.Close()
		return nil, err
	}
	return &logs.Split{Pipes: p, Pods: pods, PodDir: podDir}, nil
}
