package xds

import (
	"bytes"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// rejection says that a client, or the check of the agent before it, refused a resource in certain bytes.
type rejection struct {
	resource *draft.Resource // as it was refused
	reason   string
	at       time.Time
	check    bool             // the check refused it
	rule     int              // of the check
	cause    draft.ResourceID // see Refusal
	out      bool             // the client has no form of it, so it is not sent at all; of the check alone
	// suspectIn is the version of the list that was rejected without naming the resource, which is suspected as long
	// as the list stands; "" for one that was named.
	suspectIn string
	// since is the newest revision of the store with which the client took the type in whole before it had trouble with
	// the resource, 0 when none is known. madeAt is the one with which the list came up that was rejected.
	since, madeAt uint64

	attributed   bool // blame has been worked out, be it that there is none
	attributedAt uint64
	blame        []Blame
}

// isRejected says whether the client is known to reject a resource in these bytes.
func (n *proxyNode) isRejected(rank int, r *draft.Resource) bool {
	rej, ok := n.rejected[rank][r.Name]
	return ok && rej.resource.Version == r.Version
}

// holdOrder is the types from those that refer to others to those that are referred to.
var holdOrder = [...]int{draft.RankListener, draft.RankRoute, draft.RankCluster, draft.RankEndpoint, draft.RankSecret}

// hold works out the lists that the client should have: those of the config, with the last accepted bytes in place of
// those that it is known to reject (ENVOY rule P2), and with what these bytes refer to although the config has it no
// longer. What it rejects and never accepted in any form is left as it is: there is nothing to protect, and with the
// next change it gets another chance, since a port may be free by then. What the check refuses is not sent in any case.
func (n *proxyNode) hold() {
	if n.cfg == nil {
		return
	}
	n.lists, n.leftOut = n.cfg.Resources, [draft.NumTypes]bool{}
	if !n.troubled() {
		return
	}
	var old [draft.NumTypes][]*draft.Resource // in force beside the config
	for _, rank := range holdOrder {
		current := n.cfg.Resources[rank]
		var out func(string) bool
		old[rank], out = n.withhold(rank)
		for name, rej := range n.rejected[rank] {
			if n.unfit[rank][name] != nil {
				continue
			}
			r, a := findResource(current, name), findResource(n.accepted[rank], name)
			if r != nil && a != nil && r.Version == rej.resource.Version && a.Version != r.Version {
				old[rank] = append(old[rank], a)
			}
		}
		for _, a := range n.accepted[rank] {
			if findResource(current, a.Name) == nil && slices.ContainsFunc(referrers[rank], func(r int) bool { return anyMentions(old[r], a.Name) }) {
				old[rank] = append(old[rank], a)
			}
		}
		if len(old[rank]) > 0 || n.leftOut[rank] {
			slices.SortFunc(old[rank], compareResources)
			n.lists[rank] = mergeLists(current, old[rank], out)
		}
	}
}

// troubled says whether the client, or the check, refuses anything.
func (n *proxyNode) troubled() bool {
	for rank := range draft.Types {
		if len(n.rejected[rank])+len(n.unfit[rank]) > 0 {
			return true
		}
	}
	return false
}

// anyMentions says whether one of some resources may refer to a name. A name that stands in other words counts too: to
// keep something a little longer than needed does no harm.
func anyMentions(list []*draft.Resource, name string) bool {
	return slices.ContainsFunc(list, func(r *draft.Resource) bool { return mentions(r, name) })
}

func mentions(r *draft.Resource, name string) bool { return bytes.Contains(r.Body, []byte(name)) }

// reconsider forgets rejections that the change from one config to another has made pointless, and those of resources
// that may be taken now, since something that they refer to has come up.
func (n *proxyNode) reconsider(old, cfg *draft.Sealed) {
	for rank, names := range n.rejected {
		for name, rej := range names {
			r := findResource(cfg.Resources[rank], name)
			switch {
			case r == nil:
				delete(names, name)
				delete(n.since[rank], name)
			case r.Version != rej.resource.Version, rej.suspectIn != "" && rej.suspectIn != cfg.Versions[rank]:
				delete(names, name)
			case old != nil && needMet(rank, r, old, cfg):
				delete(names, name)
				for _, st := range n.streams {
					if w := st.watches[rank]; w != nil {
						w.quietFor = ""
					}
				}
			}
		}
		for name := range n.since[rank] {
			if findResource(cfg.Resources[rank], name) == nil {
				delete(n.since[rank], name)
			}
		}
	}
}

// needMet says whether a change of the config brings something that a resource refers to: a cluster that was missing, or
// another secret. The bytes of a cluster do not matter to what refers to it.
func needMet(rank int, r *draft.Resource, old, cfg *draft.Sealed) (met bool) {
	for _, need := range needs[rank] {
		if need == draft.RankEndpoint || old.Versions[need] == cfg.Versions[need] {
			continue
		}
		draft.Compare(old.Resources[need], cfg.Resources[need], func(was, next *draft.Resource) {
			met = met || next != nil && (was == nil || need == draft.RankSecret) && mentions(r, next.Name)
		})
	}
	return met
}
