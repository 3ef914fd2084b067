package rollout

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// InUse is the state of a client as far as the server knows it.
type InUse struct {
	// Resources are those that the client has accepted or is being sent. For a rejected or withheld
	// resource this is the form that the client accepted last, or nothing.
	Resources *draft.Lists
	Held      []draft.Rejection // resources that the client has in another form or not at all, sorted by type and name
	Draining  []Draining        // sorted by listener; some may have ended
}

// Draining is a listener of which a previous version may still have connections. Envoy drains them
// for its drain time.
type Draining struct {
	Listener string
	Since    time.Time // when the Envoy acknowledged the present version
}

// InUse returns the state of the client of a node, nil if no client is connected or no config was
// published for it.
func (p *Proxies) InUse(key node.Key) *InUse {
	n := p.proxyOf(key)
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cfg == nil || len(n.streams) == 0 {
		return nil
	}
	lists := n.lists
	out := &InUse{Resources: &lists, Held: n.rejections()}
	for rank := range draft.Types {
		rej := n.notInForce(rank)
		if len(rej) == 0 {
			continue
		}
		var last []*draft.Resource // accepted forms, sorted
		for _, r := range n.accepted[rank] {
			// A client that restarted no longer has a form that it accepted first and rejected later.
			if t := rej[r.Name]; t != nil && !(t.overtakes && t.resource.Version == r.Version) && !n.getsInstead(rank, t) {
				last = append(last, r)
			}
		}
		lists[rank] = draft.Merge(lists[rank], last, func(name string) bool {
			t := rej[name]
			// otherwise the config already contains an older form
			return t != nil && (!t.check || t.leftOut) && !n.getsInstead(rank, t)
		})
	}
	out.Draining = n.oldListeners()
	return out
}
