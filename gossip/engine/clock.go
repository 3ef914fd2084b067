package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/clock"
)

// Now is the present time on two clocks.
type Now struct {
	Wall time.Time     // may jump in either direction; used only for times that outlive the process
	Mono time.Duration // since a fixed time before the start; never jumps
}

// instant returns the monotonic time as a value that can be compared with those of other calls. The
// zero time.Time is long before all of them.
func (n Now) instant() time.Time { return time.Unix(0, 0).Add(n.Mono) }

// Parameters of clocks.
const (
	maxSkew  = 10 * time.Second // maximum distance of a record's date into the future
	clockFor = 2 * time.Minute  // how long a measured clock counts
)

// poolClock is the clock of most peers.
type poolClock struct {
	offset time.Duration // from the monotonic clock, so it stays valid when the wall clock is set
	at     time.Time     // time of the measurement; zero: unknown
	warned bool
}

// poolTime returns the time according to most peers, or to the local clock if it is not known which
// clock is right. It is used to date, park, and expire records, so a node with a wrong clock does
// not miss changes or forget deletions.
func (e *Engine) poolTime() time.Time { return e.wall.Add(e.skew(e.wall, e.now)) }

// skew returns the offset of most peers' clocks from the local clock, or 0 below 2 s and if it is
// not known which clock is right.
func (e *Engine) skew(wall, now time.Time) time.Duration {
	if e.clock.at.IsZero() {
		return 0
	}
	if d := e.clock.offset - wall.Sub(now); clock.Apart(d) {
		return d
	}
	return 0
}

// peerClocks returns the measured offsets of the peers' clocks from the local clock, sorted.
func (e *Engine) peerClocks() (all []time.Duration) {
	for _, m := range e.alive {
		if p := e.peers[m]; !p.heard.IsZero() && e.now.Sub(p.heard) < clockFor {
			all = append(all, p.clock-e.wall.Sub(e.now))
		}
	}
	slices.Sort(all)
	return all
}

// measureClock updates the clock of most peers, and warns once if the local clock differs. A
// majority counts for some time after its members have gone.
func (e *Engine) measureClock() {
	all := e.peerClocks()
	most, known, differs := clock.Compare(all)
	switch {
	case known:
		e.clock.offset, e.clock.at = most+e.wall.Sub(e.now), e.now
	case len(all) > 1 || e.now.Sub(e.clock.at) >= clockFor:
		e.clock.at = time.Time{}
	}
	skew := e.skew(e.wall, e.now)
	switch {
	case skew == 0 && differs == 0:
		e.clock.warned = false
	case !e.clock.warned && skew != 0:
		e.note("clock", fmt.Sprintf("the clock of this node differs by %s from the clocks of most peers; above %s, "+
			"this node refuses changes: set the clock", skew.Round(time.Second), maxSkew))
		e.clock.warned = true
	case !e.clock.warned:
		e.note("clock", fmt.Sprintf("the clock of a peer differs by %s from the clock of this node, and no third node shows "+
			"which one is right; later changes of the slower node can lose: set the wrong clock",
			differs.Round(time.Second)))
		e.clock.warned = true
	}
}
