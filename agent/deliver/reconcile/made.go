package reconcile

import (
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// made returns the configs that clients were given, so that what a change would make of them can be
// told from them.
func (r *Reconciler) made() map[generate.ProxyID]*generate.Proxy {
	out := make(map[generate.ProxyID]*generate.Proxy, len(r.proxies))
	for key, s := range r.proxies {
		if mesh, name, err := node.ParseID(key.ID); err == nil && s.proxy != nil {
			out[generate.ProxyID{Mesh: mesh, Name: name, Flavor: key.Flavor}] = s.proxy
		}
	}
	return out
}

// published returns what was published for the clients that are connected.
func (p *pass) published() map[node.Key]*generate.Proxy {
	out := make(map[node.Key]*generate.Proxy, len(p.r.proxies))
	for key, s := range p.r.proxies {
		if s.seen.Equal(p.now) && s.sent != nil {
			out[key] = s.sent
		}
	}
	return out
}

// forget drops what is known of a proxy.
func (r *Reconciler) forget(key node.Key) {
	if r.proxies[key] != nil {
		delete(r.proxies, key)
		r.o.Forgot()
	}
	if r.o.Logs != nil {
		r.o.Logs.Left(key)
	}
}
