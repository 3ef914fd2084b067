package rollout

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// hold computes the lists that the client should have: those of the config, in which the last
// accepted bytes replace rejected resources (ENVOY rule P2), with the resources to which these
// bytes refer and which the config no longer has. A resource that is rejected by name and was never
// accepted stays in the lists: there is no form to protect, and it may be accepted with the next
// change, for example because a port is free again. A resource for which whole responses are
// rejected is excluded; see [trial].
//
// A withheld resource that the config omits is never removed from a client that has it. A
// state-of-the-world client that connected with an unknown config receives the withheld resource
// unchanged: omitting it would remove it, whereas Envoy rejects it and keeps its present version.
func (n *proxy) hold() {
	if n.cfg == nil {
		return
	}
	n.lists, n.unsent = n.cfg.Resources, [draft.NumTypes]bool{}
	var old draft.Lists // forms that replace those of the config
	some, rejections := false, 0
	for rank := range draft.Types {
		rejections += len(n.rejected[rank]) + len(n.withheld[rank]) + len(n.lacking[rank])
		for name, rej := range n.rejected[rank] {
			r, a := n.configured(rank, name), n.acceptedForm(rank, name)
			if r != nil && a != nil && r.Version == rej.resource.Version && a.Version != r.Version && n.isHeld(rank, rej) {
				old[rank] = append(old[rank], a)
			}
		}
		for name, u := range n.withheld[rank] {
			if !u.leftOut {
				continue
			}
			form := n.acceptedForm(rank, name)
			if form == nil && n.foreign[rank] {
				form = u.resource
			}
			if u.unsent = form == nil; u.unsent {
				n.unsent[rank] = true
			} else {
				old[rank] = append(old[rank], form)
			}
		}
	}
	n.holdBack(&old)
	for rank := range old {
		some = some || len(old[rank]) > 0
		rejections += len(n.waiting[rank])
	}
	n.proxies.countRejections(n, rejections > 0)
	n.scheduleRetry()
	if some {
		n.lists = draft.Substitute(&n.cfg.Resources, &old, &n.accepted)
	}
	for rank, names := range n.excluded {
		if len(names) > 0 {
			n.lists[rank] = draft.Merge(n.lists[rank], nil, func(name string) bool { _, is := names[name]; return is })
		}
	}
	n.retainDrained()
	n.withoutKeys()
}

// dropObsoleteRejections forgets rejections of resources that have changed, and of those that may
// be accepted now because a resource to which they refer has been added.
func (n *proxy) dropObsoleteRejections(old, cfg *draft.Sealed) {
	for rank, names := range n.rejected {
		for name, rej := range names {
			r := draft.Find(cfg.Resources[rank], name)
			switch {
			case r == nil:
				delete(names, name)
			case r.Version != rej.resource.Version && n.bytesChanged(rank, rej, r):
			case r.Version != rej.resource.Version, rej.suspectIn != "" && rej.suspectIn != cfg.Versions[rank]:
				delete(names, name)
			case old != nil && !rej.suspect && needMet(rank, r, old, cfg):
				if rej.alone {
					n.tryAlone(rank, name, rej)
				} else {
					delete(names, name)
				}
				for _, st := range n.streams {
					if w := st.watches[rank]; w != nil {
						w.quietFor = ""
					}
				}
			}
		}
		for name := range n.since[rank] {
			if draft.Find(cfg.Resources[rank], name) == nil && n.withheld[rank][name] == nil &&
				n.lacking[rank][name] == nil {
				delete(n.since[rank], name)
			}
		}
	}
}

// needMet reports whether a new config adds a cluster to which a resource refers, or changes one of
// its secrets. Changes of a cluster do not affect the resources that refer to it.
func needMet(rank int, r *draft.Resource, old, cfg *draft.Sealed) (met bool) {
	refs := r.Refs()
	for _, need := range needs[rank] {
		if need == draft.RankEndpoint || old.Versions[need] == cfg.Versions[need] {
			continue
		}
		draft.Compare(old.Resources[need], cfg.Resources[need], func(was, next *draft.Resource) {
			if next != nil && (was == nil || need == draft.RankSecret) {
				met = met || refs.Has(envoy.Kind(need), next.Name) || need == draft.RankCluster && refs.AnyCluster()
			}
		})
	}
	return met
}
