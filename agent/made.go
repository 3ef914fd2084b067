package agent

import (
	"github.com/nearside-mesh/nearside/agent/inspect"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// made returns the configs that clients were given, so that what a change would make of them can be told from them.
func (r *Reconciler) made() map[inspect.ProxyID]*xds.Proxy {
	out := make(map[inspect.ProxyID]*xds.Proxy, len(r.proxies))
	for key, s := range r.proxies {
		if mesh, name, err := xds.ParseNodeID(key.ID); err == nil && s.proxy != nil {
			out[inspect.ProxyID{Mesh: mesh, Name: name, Flavor: key.Flavor}] = s.proxy
		}
	}
	return out
}
