package rollout

import (
	"net/netip"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// handover is a listener that keeps its form for a while, since its protocol changes between HTTP
// and TCP and the proxies at the other end of its connections have to change first. Between
// proxies, requests travel as HTTP/2. An inbound for HTTP takes what clients of either form send,
// and one for TCP would hand HTTP/2 to a workload that does not speak it. So the inbound becomes
// HTTP before its clients do, and TCP after them.
type handover struct {
	from     *draft.Resource
	until    time.Time
	clusters []*draft.Resource // that an inbound leads to, as they are for its old form
}

// takeSides works out which listeners wait for the other side, when the config has changed.
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

// What the names of listeners of ports begin with.
const (
	inboundPrefix  = "inbound:"
	outboundPrefix = "outbound:"
)

// goesSecond says whether the protocol of a port changes in the way in which the other side has to
// change first.
func changesSecond(old, next *draft.Resource) bool {
	address, inbound := strings.CutPrefix(old.Name, inboundPrefix)
	if !inbound {
		var ok bool
		if address, ok = strings.CutPrefix(old.Name, outboundPrefix); !ok {
			return false
		}
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return false // of redirected traffic
	}
	if inbound {
		return becomesTCP(old, next)
	}
	return becomesTCP(next, old)
}

// becomesTCP says whether a listener changes from HTTP to TCP.
func becomesTCP(old, next *draft.Resource) bool {
	http, tcp := draft.Speaks(old)
	if !http || tcp {
		return false
	}
	http, tcp = draft.Speaks(next)
	return tcp && !http
}

// awaitOthers puts the forms that listeners keep for a while among those that go in the place of
// the config's.
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
