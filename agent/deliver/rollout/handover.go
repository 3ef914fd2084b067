package rollout

import (
	"net/netip"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// handover is a listener that keeps its previous form for a while, because its protocol changes
// between HTTP and TCP and the proxies at the other end must change first. Requests between proxies
// use HTTP/2. An HTTP inbound accepts what clients of either form send, but a TCP inbound would
// pass HTTP/2 to a workload that does not support it. So the inbound changes to HTTP before its
// clients do, and to TCP after them.
type handover struct {
	from     *draft.Resource
	until    time.Time
	clusters []*draft.Resource // clusters of an inbound, as its previous form uses them
}

// planHandovers determines which listeners wait for the other side. It is called when the config
// has changed.
func (n *proxy) planHandovers() {
	was, now := n.handovers, n.proxies.opts.Now()
	n.handovers = nil
	if !n.client.Envoy || n.proxies.opts.HandoverTime <= 0 || n.cfg == nil ||
		draft.SameList(n.accepted[draft.RankListener], n.cfg.Resources[draft.RankListener]) {
		return
	}
	draft.Compare(n.accepted[draft.RankListener], n.cfg.Resources[draft.RankListener], func(old, next *draft.Resource) {
		if old == nil || next == nil || !changesSecond(old, next) {
			return
		}
		h := was[old.Name]
		if h == nil || h.from.Version != old.Version {
			h = &handover{from: old, until: now.Add(n.proxies.opts.HandoverTime)}
			if strings.HasPrefix(old.Name, inboundPrefix) {
				h.clusters = draft.LeadsTo(old, &n.accepted)
			}
		}
		if n.handovers == nil {
			n.handovers = map[string]*handover{}
		}
		n.handovers[old.Name] = h
	})
}

// Prefixes of the names of listeners.
const (
	inboundPrefix  = "inbound:"
	outboundPrefix = "outbound:"
)

// changesSecond reports whether the protocol of a port changes such that the other side must change
// first.
func changesSecond(old, next *draft.Resource) bool {
	address, inbound := strings.CutPrefix(old.Name, inboundPrefix)
	if !inbound {
		var ok bool
		if address, ok = strings.CutPrefix(old.Name, outboundPrefix); !ok {
			return false
		}
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return false // a listener for redirected traffic
	}
	if inbound {
		return becomesTCP(old, next)
	}
	return becomesTCP(next, old)
}

// becomesTCP reports whether a listener changes from HTTP to TCP.
func becomesTCP(old, next *draft.Resource) bool {
	http, tcp := draft.Speaks(old)
	if !http || tcp {
		return false
	}
	http, tcp = draft.Speaks(next)
	return tcp && !http
}

// holdHandovers adds the previous forms of listeners that wait for the other side to the lists that
// replace those of the config.
func (n *proxy) holdHandovers(old *draft.Lists) {
	now := n.proxies.opts.Now()
	for name, h := range n.handovers {
		a := n.acceptedForm(draft.RankListener, name)
		if !h.until.After(now) || a == nil || a.Version != h.from.Version {
			continue
		}
		old[draft.RankListener] = append(old[draft.RankListener], a)
		old[draft.RankCluster] = append(old[draft.RankCluster], h.clusters...)
		n.delayed[draft.RankListener] = true
	}
}
