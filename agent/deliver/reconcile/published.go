package reconcile

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
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
