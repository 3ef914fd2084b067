package rollout

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// hold works out the lists that the client should have: those of the config, with the last accepted
// bytes in place of those that it is known to reject (ENVOY rule P2), and with what these bytes
// refer to although the config has it no longer. What it rejects by name and never accepted in any
// form is left as it is: there is nothing to protect, and with the next change it gets another
// chance, since a port may be free by then. What it rejects whole responses for is left out; see
// [trial].
//
// What is withheld and left out of the config is never taken from a client that has it. A
// state-of-the-world client that came with a config of unknown bytes is sent it as it is: to leave
// it out would remove it, while Envoy rejects it and keeps what it has.
func (n *proxy) hold() {
	if n.cfg == nil {
		return
	}
	n.lists, n.unsent = n.cfg.Resources, [draft.NumTypes]bool{}
	var old draft.Lists // in force beside the config
	some, rejections := false, 0
	for rank := range draft.Types {
		rejections += len(n.rejected[rank]) + len(n.withheld[rank])
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
}

// reconsider forgets rejections that the change from one config to another has made pointless, and
// those of resources that may be taken now, since something that they refer to has come up.
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
			if draft.Find(cfg.Resources[rank], name) == nil && n.withheld[rank][name] == nil {
				delete(n.since[rank], name)
			}
		}
	}
}

// needMet says whether a change of the config brings something that a resource refers to: a cluster
// that was missing, or another secret. The bytes of a cluster do not matter to what refers to it.
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
