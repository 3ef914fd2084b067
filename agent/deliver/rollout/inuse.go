package rollout

import (
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// InUse is what a client has, as far as the server knows.
type InUse struct {
	// Resources are those that it has accepted, or is being sent: of what it rejects or what is
	// withheld from it, the form that it accepted last, or nothing.
	Resources *draft.Lists
	Held      []draft.Rejection // what it has another form of, or nothing; sorted by type and name
	Draining  []Draining
}

// Draining is a listener of which a client has let a form go, while connections may still use it.
type Draining struct {
	Listener string
	Until    time.Time // when the last of them has ended
}

// InUse returns what the client of a node has, nil when none is connected or no config was
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
		var last []*draft.Resource // of those that it has in another form; lists are sorted
		for _, r := range n.accepted[rank] {
			// What it accepted and has rejected since, started anew, it does not have any more.
			if t := rej[r.Name]; t != nil && !(t.overtakes && t.resource.Version == r.Version) {
				last = append(last, r)
			}
		}
		lists[rank] = draft.Merge(lists[rank], last, func(name string) bool {
			t := rej[name]
			return t != nil && (!t.check || t.leftOut) // else the config has an older form in its place
		})
	}
	now := n.proxies.opts.Now()
	for _, d := range n.draining {
		if d.until.After(now) {
			out.Draining = append(out.Draining, Draining{d.name, d.until})
		}
	}
	return out
}
