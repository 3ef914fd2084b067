package rollout

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// maxKnownKeys limits the resources of a proxy of which it is known whether they hold a key.
const maxKnownKeys = 8192

// isPlain reports whether a client of the proxy must not have private keys.
func (n *proxy) isPlain() bool {
	return slices.ContainsFunc(n.streams, func(st *Stream) bool { return !st.client.Peer.MayHaveSecrets() })
}

// withoutKeys removes the resources with inline keys from the lists of a proxy with a plain
// connection. It is the last step, so that no other rule sends their earlier or accepted forms.
func (n *proxy) withoutKeys() {
	if !n.isPlain() {
		return
	}
	for rank, list := range n.lists {
		n.lists[rank] = draft.Merge(list, nil, func(name string) bool {
			r := draft.Find(list, name)
			return r != nil && n.holdsKey(rank, r)
		})
	}
}

// holdsKey reports whether a resource holds an inline key.
func (n *proxy) holdsKey(rank int, r *draft.Resource) bool {
	holds, known := n.keyed[r.Version]
	if !known {
		if n.keyed == nil || len(n.keyed) >= maxKnownKeys {
			n.keyed = map[string]bool{}
		}
		_, holds = danger.KeyIn(draft.Types[rank], r.Body())
		if n.keyed[r.Version] = holds; holds {
			n.proxies.metrics.refused.WithLabelValues(typeLabels[rank]).Inc()
			n.logLater("a resource with an inline key is withheld from a plain connection; connect the Envoy to the unix "+
				"socket, or set xds.tls", "node", n.key.ID, "type", draft.Types[rank],
				"resource", clip.PrintableText(r.Name, maxEventName))
		}
	}
	return holds
}

// Plain reports whether a client of a node is connected in a way that permits no private keys.
func (p *Proxies) Plain(key node.Key) bool {
	n := p.proxyOf(key)
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isPlain()
}
