package rollout

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/api"
)

// rejectionState is what of a config is not in force at a client: what the client rejected, what
// the check withholds, and what waits for one of these. It is guarded by the mu of the proxy.
type rejectionState struct {
	rejected [draft.NumTypes]map[string]*rejection
	withheld [draft.NumTypes]map[string]*rejection // by the check
	waiting  [draft.NumTypes]map[string]*rejection // listeners and routes that need a rejected cluster
	since    [draft.NumTypes]map[string]uint64     // rejection.since, until the client accepts the resource

	trials   [draft.NumTypes]trial
	excluded [draft.NumTypes]map[string]struct{} // absent from lists during a trial; see isSpared
	delayed  [draft.NumTypes]bool                // some resources wait until the client has answered other types
	unsent   [draft.NumTypes]bool                // a withheld resource is sent in no form; see leavesUnsent

	checkedAgainst []*draft.Resource // Config.Listeners
	checked        []draft.Withheld  // Config.Withheld, of which withheld is made

	retryTimer *time.Timer // runs while a rejected resource is to be sent again
	rejects    bool        // whether the node is counted in Proxies.rejecting
}

// rejection says that a client rejected a resource in certain bytes, or that the check of the agent
// withholds it.
type rejection struct {
	resource *draft.Resource // as it was refused
	reason   string
	at       time.Time
	check    bool             // the check withholds it, and the client has not seen it
	rule     int              // of the check
	cause    draft.ResourceID // see [draft.Withheld]
	leftOut  bool             // withheld, and the config has nothing in its place
	unsent   bool             // left out, and nothing is sent in its place
	// suspect says that the client rejected a response with it without naming a resource, and it is
	// not known yet for which; alone that it rejected one with nothing else beside it that was new.
	// See [trial].
	suspect, alone bool
	retry          retry
	// suspectIn is the version of the list that was rejected without naming the resource, which is
	// suspected as long as the list stands; "" for one that was named.
	suspectIn string
	// since is the newest revision of the store with which the client took the type in whole before it
	// had trouble with the resource, 0 when none is known. madeAt is the one with which the list came
	// up that was rejected.
	since, madeAt uint64
	overtakes     bool // the client had accepted these bytes before
	// came is the version that the client had at the start of its watch and has in the place of these
	// bytes; "" for none. It lacks the resource when it has told the watch what it has, and that is
	// not among it. Both hold for that watch alone.
	initialVersion string
	lacks          bool
	initialOf      *typeWatch

	attributed   bool // blame has been worked out, be it that there is none
	attributedAt uint64
	blame        []api.Blame
}

// noteCame takes from the response that was rejected, or from the rejection before, what the client
// came with.
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

// by says who found the resource unusable.
func (r *rejection) by() string {
	if r.check {
		return api.HeldByCheck
	}
	return api.HeldByProxy
}

// isRejected says whether the client is known to reject a resource in these bytes.
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
	if len(s.since[rank]) > 0 && s.withheld[rank][r.Name] == nil && current {
		delete(s.since[rank], r.Name)
	}
}

// rejectedSince returns rejection.since of a name. For a name that was not rejected before, it is
// taken, the newest revision of which the client has accepted the type.
func (s *rejectionState) rejectedSince(rank int, name string, taken uint64) uint64 {
	if s.since[rank] == nil {
		s.since[rank] = map[string]uint64{}
	}
	if _, known := s.since[rank][name]; !known {
		s.since[rank][name] = taken
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

// leavesUnsent reports whether the client keeps what it says it has under a name: the resource, or
// one that may refer to it, is withheld and sent in no form.
func (s *rejectionState) leavesUnsent(rank int, name string) bool {
	if u := s.withheld[rank][name]; u != nil && u.unsent {
		return true
	}
	return slices.ContainsFunc(draft.Referrers[rank], func(r int) bool { return s.unsent[r] })
}

// forgetRejected forgets what the client rejected.
func (s *rejectionState) forgetRejected() { clear(s.rejected[:]) }

// reset forgets everything about a client.
func (s *rejectionState) reset() {
	s.forgetRejected()
	clear(s.since[:])
	clear(s.waiting[:])
}

// heldBy counts the resources of a type that the client rejects, and those that the check withholds
// from it.
func (s *rejectionState) heldBy(rank int) (proxy, check int) {
	for name := range s.rejected[rank] {
		if s.withheld[rank][name] == nil {
			proxy++
		}
	}
	proxy += len(s.waiting[rank])
	return proxy, len(s.withheld[rank])
}

// notInForce returns the rejections of a type by name, in any order: those of the check, and those
// of the client beside them.
func (s *rejectionState) notInForce(rank int) map[string]*rejection {
	if len(s.withheld[rank])+len(s.waiting[rank]) == 0 {
		return s.rejected[rank]
	}
	out := map[string]*rejection{}
	maps.Copy(out, s.waiting[rank])
	maps.Copy(out, s.withheld[rank])
	for name, r := range s.rejected[rank] {
		if out[name] == nil {
			out[name] = r
		}
	}
	return out
}
