package rollout

import (
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// resourceState is the config of a node, and the resources that its client has accepted. It is
// guarded by the mu of the proxy.
type resourceState struct {
	cfg      *draft.Sealed // nil while no stream is open
	previous *draft.Sealed // cfg before the last stream ended, if something of it is rejected or withheld
	revision uint64        // revision of the store from which cfg was generated
	lists    draft.Lists   // target of the streams; see hold
	accepted draft.Lists   // the bytes that the client accepted last, sorted by name
	served   bool          // the node had a config at some time
	// foreign is set for a type if a state-of-the-world client connected with resources that are not
	// known.
	foreign [draft.NumTypes]bool
}

// acceptedForm returns the bytes that the client accepted last of a resource, nil for none.
func (s *resourceState) acceptedForm(rank int, name string) *draft.Resource {
	return draft.Find(s.accepted[rank], name)
}

// configured returns the resource in the config, nil for none.
func (s *resourceState) configured(rank int, name string) *draft.Resource {
	if s.cfg == nil {
		return nil
	}
	return draft.Find(s.cfg.Resources[rank], name)
}

// afterResponse returns the list of accepted resources after the client has accepted some resources
// of a response, with the names that it removed. A client drops endpoints without a message, so
// names that neither the config nor base has are forgotten when there are more than the config has.
func (s *resourceState) afterResponse(rank int, good []*draft.Resource, removed []string,
	base []*draft.Resource) []*draft.Resource {
	if isMerged(base, s.accepted[rank], good, removed) {
		return base // shared with the config, and with other proxies
	}
	accepted := draft.Merge(s.accepted[rank], good, func(name string) bool {
		_, gone := slices.BinarySearch(removed, name)
		return gone
	})
	if s.cfg == nil || len(accepted) <= len(s.cfg.Resources[rank]) {
		return accepted
	}
	return draft.Merge(accepted, nil, func(name string) bool {
		return s.configured(rank, name) == nil && draft.Find(base, name) == nil
	})
}

// isMerged reports whether a list is that of accepted resources after the client has accepted some
// more and removed some names. All are sorted by name.
func isMerged(list, accepted, good []*draft.Resource, removed []string) bool {
	for _, r := range list {
		for len(accepted) > 0 && len(removed) > 0 && accepted[0] != r && accepted[0].Name == removed[0] {
			accepted, removed = accepted[1:], removed[1:]
		}
		switch {
		case len(good) > 0 && good[0] == r:
			if good = good[1:]; len(accepted) > 0 && accepted[0].Name == r.Name {
				accepted = accepted[1:]
			}
		case len(accepted) > 0 && accepted[0] == r:
			accepted = accepted[1:]
		default:
			return false
		}
	}
	return len(accepted)+len(good) == 0
}

// close forgets the config after the last stream has ended: the next stream waits for a new one.
// The accepted resources stay.
func (s *resourceState) close(rejects bool) {
	if s.previous = nil; rejects {
		s.previous = s.cfg
	}
	s.cfg, s.lists = nil, draft.Lists{}
}

// hasAccepted reports whether accepted resources are known.
func (s *resourceState) hasAccepted() bool {
	return slices.ContainsFunc(s.accepted[:], func(l []*draft.Resource) bool { return len(l) > 0 })
}
