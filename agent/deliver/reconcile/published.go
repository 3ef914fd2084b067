package reconcile

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// configs returns the last computed configs of clients, to compare them with the configs after a
// change.
func (r *Reconciler) configs() map[generate.ProxyID]*generate.Proxy {
	out := make(map[generate.ProxyID]*generate.Proxy, len(r.proxies))
	for key, s := range r.proxies {
		if mesh, name, err := node.ParseID(key.ID); err == nil && s.proxy != nil {
			out[generate.ProxyID{Mesh: mesh, Name: name, Flavor: key.Flavor}] = s.proxy
		}
	}
	return out
}

// published returns the published configs of connected clients.
func (p *pass) published() map[node.Key]*generate.Proxy {
	out := make(map[node.Key]*generate.Proxy, len(p.r.proxies))
	for key, s := range p.r.proxies {
		if s.seen.Equal(p.now) && s.sent != nil {
			out[key] = s.sent
		}
	}
	return out
}

// stale returns why connected clients keep an older config.
func (p *pass) stale() map[node.Key]status.Stale {
	out := map[node.Key]status.Stale{}
	for key, s := range p.r.proxies {
		if s.seen.Equal(p.now) && s.stale.Reason != "" {
			out[key] = s.stale
		}
	}
	return out
}

// leftOut returns what the configs of connected clients lack.
func (p *pass) leftOut() map[node.Key][]status.LeftOut {
	out := map[node.Key][]status.LeftOut{}
	for key, s := range p.r.proxies {
		if s.seen.Equal(p.now) && len(s.leftOut) > 0 {
			out[key] = s.leftOut
		}
	}
	return out
}

// forget drops the state of a proxy.
func (r *Reconciler) forget(key node.Key) {
	if r.proxies[key] != nil {
		delete(r.proxies, key)
		r.o.Forgot()
	}
	if r.o.Logs != nil {
		r.o.Logs.Left(key)
	}
}
