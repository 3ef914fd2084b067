package rollout

import (
	"slices"
)

// trial is the search for the resources of one type for which a client rejects whole responses
// without naming any. All of such a response that was new to the client is suspected. Suspects are
// held back and sent again in halves, one group at a time, and only once the client has answered
// all else: what it accepts is in force, what it rejects is halved again, until the resources are
// left that it rejects by themselves. For k of n resources that takes at most 2k(1+log2 n)
// responses.
//
// Which names are suspected is told by [rejectios.suspect] alone: a group may hold names that are
// suspected no longer.
type trial struct {
	test []string   // may be sent now; nil for none
	wait [][]string // are held back; the last one is the next
}

// goOn forgets the names that are suspected no longer and says whether anything is left to be
// tried.
func (s *rejectionState) pruneTrial(rank int) bool {
	t := &s.trials[rank]
	if t.test == nil && t.wait == nil {
		return false
	}
	settled := func(name string) bool {
		rej := s.rejected[rank][name]
		return rej == nil || !rej.suspect
	}
	if t.test = slices.DeleteFunc(t.test, settled); len(t.test) == 0 {
		t.test = nil
	}
	for i := range t.wait {
		t.wait[i] = slices.DeleteFunc(t.wait[i], settled)
	}
	if t.wait = slices.DeleteFunc(t.wait, func(g []string) bool { return len(g) == 0 }); len(t.wait) == 0 {
		t.wait = nil
	}
	return t.test != nil || t.wait != nil
}

// halve puts the names of a response that was rejected without a name on trial, in two halves. All
// are names of s.rejected.
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

// isolate has a resource tried by itself, after all others.
func (s *rejectionState) tryAlone(rank int, name string, rej *rejection) {
	rej.suspect, rej.alone = true, false
	s.trials[rank].wait = slices.Insert(s.trials[rank].wait, 0, []string{name})
}

// isHeldBack says whether a rejected resource is not sent in any form where none was accepted: it
// would have the client reject all that is sent with it.
func (s *rejectionState) isHeldBack(rank int, rej *rejection) bool {
	return rej.alone || rej.suspect && !slices.Contains(s.trials[rank].test, rej.resource.Name)
}

// isSpared says whether a name is left as it is at the client, for now.
func (s *rejectionState) isExcluded(rank int, name string) bool {
	_, is := s.excluded[rank][name]
	return is
}

// isHeld says whether the form of a rejected resource that was accepted last stays in its place.
func (s *rejectionState) isHeld(rank int, rej *rejection) bool {
	if rej.suspect {
		return s.isHeldBack(rank, rej)
	}
	return !rej.retry.sent
}

// spare leaves a name out of lists, and has the client keep what it has under it.
func (s *rejectionState) exclude(rank int, name string) {
	if s.excluded[rank] == nil {
		s.excluded[rank] = map[string]struct{}{}
	}
	s.excluded[rank][name] = struct{}{}
}
