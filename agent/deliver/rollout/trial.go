package rollout

import (
	"slices"
)

// trial is the search for the resources of one type for which a client rejects whole responses
// without naming any. All resources of such a response that were new to the client are suspects.
// Suspects are excluded from other responses and sent again in halves, one group at a time, when
// the client has answered everything else. Accepted groups are in force, rejected groups are halved
// again, until the resources are found that are rejected separately. For k of n resources this
// takes at most 2k(1+log2 n) responses.
//
// [rejection.suspect] determines which names are suspected: a group may contain names that are no
// longer suspected.
type trial struct {
	test []string   // may be sent now; nil for none
	wait [][]string // groups that are excluded; the last one is sent next
}

// pruneTrial removes names that are no longer suspected, and reports whether any group is left.
func (s *rejectionState) pruneTrial(rank int) bool {
	t := &s.trials[rank]
	if t.test == nil && t.wait == nil {
		return false
	}
	answered := func(name string) bool {
		rej := s.rejected[rank][name]
		return rej == nil || !rej.suspect
	}
	if t.test = slices.DeleteFunc(t.test, answered); len(t.test) == 0 {
		t.test = nil
	}
	for i := range t.wait {
		t.wait[i] = slices.DeleteFunc(t.wait[i], answered)
	}
	if t.wait = slices.DeleteFunc(t.wait, func(g []string) bool { return len(g) == 0 }); len(t.wait) == 0 {
		t.wait = nil
	}
	return t.test != nil || t.wait != nil
}

// bisect adds the names of a response that was rejected without a name as two groups. All are keys
// of s.rejected.
func (s *rejectionState) bisect(rank int, names []string) {
	if len(names) == 0 {
		return
	}
	t := &s.trials[rank]
	in := func(name string) bool { return slices.Contains(names, name) }
	if rest := slices.DeleteFunc(t.test, in); len(rest) > 0 {
		t.wait = append(t.wait, rest)
	}
	t.test = nil
	for i := range t.wait {
		t.wait[i] = slices.DeleteFunc(t.wait[i], in)
	}
	half := (len(names) + 1) / 2
	t.wait = append(t.wait, slices.Clone(names[half:]), slices.Clone(names[:half]))
	s.pruneTrial(rank)
}

// tryAlone schedules a resource to be sent separately after all other groups.
func (s *rejectionState) tryAlone(rank int, name string, rej *rejection) {
	rej.suspect, rej.alone = true, false
	s.trials[rank].wait = slices.Insert(s.trials[rank].wait, 0, []string{name})
}

// isHeldBack reports whether a rejected resource without an accepted form is not sent: the client
// would reject everything that is sent with it.
func (s *rejectionState) isHeldBack(rank int, rej *rejection) bool {
	return rej.alone || rej.suspect && !slices.Contains(s.trials[rank].test, rej.resource.Name)
}

// isExcluded reports whether a trial excludes a name from the lists; see exclude.
func (s *rejectionState) isExcluded(rank int, name string) bool {
	_, is := s.excluded[rank][name]
	return is
}

// isHeld reports whether the accepted form of a rejected resource replaces it.
func (s *rejectionState) isHeld(rank int, rej *rejection) bool {
	if rej.suspect {
		return s.isHeldBack(rank, rej)
	}
	return !rej.retry.sent
}

// exclude excludes a name from the lists, so that the client retains its resource of that name.
func (s *rejectionState) exclude(rank int, name string) {
	if s.excluded[rank] == nil {
		s.excluded[rank] = map[string]struct{}{}
	}
	s.excluded[rank][name] = struct{}{}
}
