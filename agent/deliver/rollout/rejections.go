package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// rejectionState holds the resources of a config that are not in force at a client: those that the
// client rejected, those that the check withholds, and those that wait for one of them. It is
// guarded by the mu of the proxy.
type rejectionState struct {
	rejected [draft.NumTypes]map[string]*rejection
	withheld [draft.NumTypes]map[string]*rejection // by the check
	waiting  [draft.NumTypes]map[string]*rejection // listeners and routes that need a rejected cluster
	lacking  [draft.NumTypes]map[string]*rejection // the config has another form; see substitute
	since    [draft.NumTypes]map[string]uint64     // rejection.since, until the client accepts the resource

	trials   [draft.NumTypes]trial
	excluded [draft.NumTypes]map[string]struct{} // absent from lists during a trial; see isExcluded
	delayed  [draft.NumTypes]bool                // some resources wait until the client has answered other types
	unsent   [draft.NumTypes]bool                // a withheld resource is sent in no form; see leavesUnsent

	checkedAgainst []*draft.Resource // Config.Listeners
	checked        []draft.Withheld  // Config.Withheld, the source of withheld
	substituted    []draft.Rejection // Config.Substituted, the source of lacking
	resets         uint64            // how often the rejections of a previous client were forgotten

	retryTimer *time.Timer // runs while a rejected resource is to be sent again
	rejects    bool        // whether the node is counted in Proxies.rejecting
}

// rejection says that a client rejected a resource in certain bytes, or that the check withholds
// it.
type rejection struct {
	resource *draft.Resource // the rejected version
	reason   string
	at       time.Time
	check    bool             // the check withholds it; the client has not received it
	rule     int              // number of the rule of the check
	cause    draft.ResourceID // see [draft.Withheld]
	leftOut  bool             // withheld, and the config has no other form of it
	unsent   bool             // left out, and no other form is sent
	// suspect is set if the client rejected a response without naming a resource, and the search
	// for the cause has not finished. alone is set if the client rejected a response in which only
	// this resource was new. See [trial].
	suspect, alone bool
	retry          retry
	// suspectIn is the version of the list that was rejected without a name. The resource is
	// suspected until the list changes. "" if the resource was named.
	suspectIn string
	// since is the newest revision of the store whose resources of this type the client accepted
	// before the rejection, 0 if none is known. madeAt is the revision that introduced the rejected
	// list.
	since, madeAt uint64
	overtakes     bool // the client had accepted these bytes before
	// initialVersion is the version that the client had when its watch started and still has; ""
	// for none. lacks is set if the client reported its versions and this resource is not among
	// them. Both apply only to that watch.
	initialVersion string
	lacks          bool
	initialOf      *typeWatch

	without []api.Omitted   // see [draft.Rejection.Without]
	instead *draft.Resource // see [draft.Rejection.Instead]

	deciding     bool // see [draft.Rejection.Deciding]
	read         bool // [Proxies.Rejections] returned it with its blame
	attributed   bool // blame was determined, and may be empty
	attributedAt uint64
	blame        []api.Blame
}

// noteInitialVersions copies what the client had when it connected from the rejected response, or
// from the previous rejection.
func (rej *rejection) noteInitialVersions(t *Response, last *rejection) {
	name := rej.resource.Name
	switch version := t.initialVersion[name]; {
	case !t.w.delta:
	case version != "":
		rej.initialVersion, rej.initialOf = version, t.w
	case last != nil && last.initialOf == t.w:
		if last.initialVersion != rej.resource.Version {
			rej.initialVersion, rej.lacks, rej.initialOf = last.initialVersion, last.lacks, t.w
		}
	case draft.Find(t.before, name) == nil:
		rej.lacks, rej.initialOf = true, t.w
	}
}

// by returns what found the resource unusable, as the API names it.
func (r *rejection) by() string {
	if r.check {
		return api.HeldByCheck
	}
	return api.HeldByProxy
}

// isRejected reports whether the client rejects a resource in these bytes.
func (s *rejectionState) isRejected(rank int, r *draft.Resource) bool {
	rej, ok := s.rejected[rank][r.Name]
	return ok && rej.resource.Version == r.Version
}

// forgetAccepted forgets the rejection of a resource that the client has accepted. current says
// whether the config has the resource in these bytes.
func (s *rejectionState) forgetAccepted(rank int, r *draft.Resource, current bool) {
	if s.isRejected(rank, r) {
		delete(s.rejected[rank], r.Name)
	}
	if len(s.since[rank]) > 0 && s.withheld[rank][r.Name] == nil && s.lacking[rank][r.Name] == nil && current {
		delete(s.since[rank], r.Name)
	}
}

// rejectedSince returns rejection.since of a name. For a name that was not rejected before, this is
// accepted, the newest revision of which the client has accepted the type.
func (s *rejectionState) rejectedSince(rank int, name string, accepted uint64) uint64 {
	if s.since[rank] == nil {
		s.since[rank] = map[string]uint64{}
	}
	if _, known := s.since[rank][name]; !known {
		s.since[rank][name] = accepted
	}
	return s.since[rank][name]
}

// nextRetry returns the time of the first retry, zero for none.
func (s *rejectionState) nextRetry() (first time.Time) {
	for _, names := range s.rejected {
		for _, rej := range names {
			if rej.retry.attempt > 0 && !rej.retry.sent && (first.IsZero() || rej.retry.at.Before(first)) {
				first = rej.retry.at
			}
		}
	}
	return first
}

// leavesUnsent reports whether the client retains the resource that it reported under a name: that
// resource, or one that may refer to it, is withheld and not sent in any form.
func (s *rejectionState) leavesUnsent(rank int, name string) bool {
	if u := s.withheld[rank][name]; u != nil && u.unsent {
		return true
	}
	return slices.ContainsFunc(draft.Referrers[rank], func(r int) bool { return s.unsent[r] })
}

// forgetRejected forgets what the client rejected.
func (s *rejectionState) forgetRejected() {
	clear(s.rejected[:])
	s.resets++
}

// reset forgets everything about a client.
func (s *rejectionState) reset() {
	s.forgetRejected()
	clear(s.since[:])
	clear(s.waiting[:])
}

// heldBy returns how many resources of a type the client rejects, and how many the check withholds.
func (s *rejectionState) heldBy(rank int) (proxy, check int) {
	for name := range s.rejected[rank] {
		if s.withheld[rank][name] == nil && s.lacking[rank][name] == nil {
			proxy++
		}
	}
	check = len(s.withheld[rank])
	for name, r := range s.lacking[rank] {
		switch {
		case !r.check:
			proxy++
		case s.withheld[rank][name] == nil:
			check++
		}
	}
	return proxy + len(s.waiting[rank]), check
}

// notInForce returns the rejections of a type by name: those for which the config has another form,
// those of the check, and those of the client for other resources.
func (s *rejectionState) notInForce(rank int) map[string]*rejection {
	if len(s.withheld[rank])+len(s.waiting[rank])+len(s.lacking[rank]) == 0 {
		return s.rejected[rank]
	}
	out := map[string]*rejection{}
	maps.Copy(out, s.waiting[rank])
	maps.Copy(out, s.withheld[rank])
	maps.Copy(out, s.lacking[rank])
	for name, r := range s.rejected[rank] {
		if out[name] == nil {
			out[name] = r
		}
	}
	return out
}
