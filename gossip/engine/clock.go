package engine

import (
	"fmt"
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
	maxSkew   = clock.MaxSkew
	clockFor  = 2 * time.Minute  // how long a measured clock counts
	ageSaving = 10 * time.Minute // interval of saving the clock that expires data
)

// poolClock is the clock of most peers.
type poolClock struct {
	offset      time.Duration // from the monotonic clock, so it stays valid when the wall clock is set
	at          time.Time     // time of the measurement; zero: unknown
	established bool          // the peers have been known for long
	confirmed   bool          // the peers agree with the local clock
	warned      bool
	pool        time.Time // wall time since which this node knows peers; zero: none yet
	age         clock.Ager
	savedAge    time.Time
}

// poolTime returns the local time, moved by at most 10 s towards the clocks of most peers. It is
// used to date and park records, so the claims of other nodes have a bounded effect.
func (e *Engine) poolTime() time.Time { return e.wall.Add(clock.Bounded(e.skew(e.wall, e.now))) }

// PoolTime returns the date of a change that is made now.
func (e *Engine) PoolTime(now Now) time.Time {
	return now.Wall.Add(clock.Bounded(e.skew(now.Wall, now.instant())))
}

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

// vote compares the measured clocks of the peers with the local clock.
func (e *Engine) vote() clock.Verdict {
	var all []clock.Voter
	for _, m := range e.alive {
		if p := e.peers[m]; !p.heard.IsZero() && e.now.Sub(p.heard) < clockFor {
			all = append(all, clock.Voter{Name: p.display, Known: p.known, Enrolled: p.enrolled,
				Offset: p.clock - e.wall.Sub(e.now)})
		}
	}
	return clock.Vote(all, e.clock.pool, e.wall)
}

// meet records the name of a peer, and since when this node knows it.
func (e *Engine) meet(p *peer, ev PeerUp) {
	p.display, p.enrolled = ev.Name, ev.Enrolled
	if p.display == "" {
		p.display = ev.Node.String()
	}
	if p.known.IsZero() {
		p.known = e.wall
	}
	if !ev.Known.IsZero() {
		p.known = ev.Known
	}
	if e.clock.pool.IsZero() || p.known.Before(e.clock.pool) {
		e.clock.pool = p.known
		e.write(bucketMeta, metaPool, putTime(p.known))
	}
}

// measureClock updates the clock of most peers, and warns once if the local clock differs. A
// majority counts for some time after its members have gone.
func (e *Engine) measureClock() {
	v := e.vote()
	e.clock.confirmed = v.Confirmed
	switch {
	case v.Known:
		e.clock.offset, e.clock.at, e.clock.established = v.Most+e.wall.Sub(e.now), e.now, v.Established
	case v.Voters > 1 || e.now.Sub(e.clock.at) >= clockFor:
		e.clock.at = time.Time{}
	}
	skew := e.skew(e.wall, e.now)
	switch {
	case skew == 0 && v.Differs == 0:
		e.clock.warned = false
	case !e.clock.warned && skew != 0:
		e.note("clock", fmt.Sprintf("the clock of this node differs by %s from the clocks of most peers; above %s, "+
			"this node refuses changes if it has known these peers for more than a day: set the clock",
			skew.Round(time.Second), maxSkew))
		e.clock.warned = true
	case !e.clock.warned:
		e.note("clock", fmt.Sprintf("the clock of a peer differs by %s from the clock of this node, and no third node shows "+
			"which one is right; later changes of the slower node can lose: set the wrong clock",
			v.Differs.Round(time.Second)))
		e.clock.warned = true
	}
}

// startAging starts the clock that expires data from its last saved time.
func (e *Engine) startAging() {
	at := e.clock.savedAge
	for _, t := range []time.Time{e.agreed, e.wall} {
		if at.IsZero() {
			at = t
		}
	}
	e.clock.age = clock.NewAger(at, e.now)
}

// ageTime returns the time that expires data. It advances at most as fast as the monotonic clock,
// until peers confirm the local clock.
func (e *Engine) ageTime() time.Time {
	at := e.clock.age.Advance(e.wall, e.now, e.clock.confirmed)
	if at.Sub(e.clock.savedAge).Abs() >= ageSaving {
		e.clock.savedAge = at
		e.write(bucketMeta, metaAge, putTime(at))
	}
	return at
}
