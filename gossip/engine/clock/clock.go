// Package clock compares the clocks of nodes, and ages data. It reads no clock.
package clock

import (
	"cmp"
	"slices"
	"time"
)

const (
	minSkew = 2 * time.Second // smaller differences between clocks are ignored
	// MaxSkew is the maximum distance of a record's date into the future, and the maximum effect of
	// other clocks on the local one.
	MaxSkew = 10 * time.Second
	// EstablishedAfter is the time after which a known name counts in a pool that is older.
	EstablishedAfter = 24 * time.Hour
)

// Apart reports whether an offset between two clocks is not an error of measurement.
func Apart(d time.Duration) bool { return d > minSkew || d < -minSkew }

// Bounded limits the effect of other clocks.
func Bounded(d time.Duration) time.Duration { return min(max(d, -MaxSkew), MaxSkew) }

// Voter is the clock of a live node.
type Voter struct {
	Name     string        // pinned display name: each has one vote
	Known    time.Time     // when this node first knew the name, by the local clock
	Enrolled bool          // an operator vouches for the node, so it counts at once
	Offset   time.Duration // of its clock from the local clock
}

// Verdict is the result of Vote.
type Verdict struct {
	Most        time.Duration // offset of most clocks from the local clock
	Known       bool          // there is a majority
	Established bool          // all voters have been known for long
	Differs     time.Duration // the largest offset above 2 s if there is no majority
	Confirmed   bool          // other clocks agree with the local clock
	Voters      int
}

// old reports whether a time is more than a day away. A time far ahead was recorded before the
// local clock was set back, so it is old too.
func old(t, now time.Time) bool { return now.Sub(t).Abs() > EstablishedAfter }

// Vote compares the clocks of nodes with the local clock, which shows now. Each name has one vote.
// If the pool has been known since a time more than a day ago, only names that have been known for
// longer than a day count.
func Vote(all []Voter, pool, now time.Time) (v Verdict) {
	v.Established = !pool.IsZero() && old(pool, now)
	all = slices.DeleteFunc(slices.Clone(all), func(x Voter) bool {
		return v.Established && !x.Enrolled && !old(x.Known, now)
	})
	v.Established = v.Established || len(all) > 0 && !slices.ContainsFunc(all, func(x Voter) bool { return !x.Enrolled })
	slices.SortFunc(all, func(a, b Voter) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Offset.Abs(), b.Offset.Abs()))
	})
	all = slices.CompactFunc(all, func(a, b Voter) bool { return a.Name == b.Name })
	offsets := make([]time.Duration, 0, len(all))
	for _, x := range all {
		offsets = append(offsets, x.Offset)
		v.Confirmed = v.Confirmed || x.Offset.Abs() <= MaxSkew
	}
	slices.Sort(offsets)
	v.Voters = len(offsets)
	v.Most, v.Known, v.Differs = compare(offsets)
	if v.Known {
		v.Confirmed = v.Most.Abs() <= MaxSkew
	}
	return v
}

// compare returns the offset of most peers' clocks from the local clock, given all, sorted. Two
// peers that agree are a majority over this node, and one that agrees with this node is a majority
// over the other. If there is no majority, known is false, and differs is the largest offset if
// there is one above 2 s.
func compare(all []time.Duration) (most time.Duration, known bool, differs time.Duration) {
	switch n := len(all); {
	case n >= 3 || n == 2 && !Apart(all[1]-all[0]):
		return all[n/2], true, 0
	case n == 2 && (!Apart(all[0]) || !Apart(all[1])):
		return 0, true, 0
	case n == 0:
		return 0, false, 0
	}
	differs = slices.MaxFunc(all, func(a, b time.Duration) int { return cmp.Compare(a.Abs(), b.Abs()) })
	if !Apart(differs) {
		differs = 0
	}
	return 0, false, differs
}

// Ager is the clock that expires data. Unless other clocks confirm the local wall clock, it is
// never faster than the monotonic clock, so a wall clock that jumps ahead expires nothing early.
type Ager struct{ at, mono time.Time }

// NewAger returns a clock that shows a time.
func NewAger(at, mono time.Time) Ager { return Ager{at, mono} }

// slack is the difference between the wall clock and the monotonic clock that is no jump.
const slack = time.Minute

// Advance returns the time for the present wall and monotonic times.
func (a *Ager) Advance(wall, mono time.Time, confirmed bool) time.Time {
	slow := a.at.Add(max(mono.Sub(a.mono), 0))
	if a.mono = mono; confirmed || !wall.After(slow.Add(slack)) {
		a.at = wall
	} else {
		a.at = slow
	}
	return a.at
}
