package account

import (
	"maps"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Times of problems.
const (
	lossFor      = time.Hour        // how long a problem stays after its last lost line or refused sender
	spoolOld     = 30 * time.Second // age of the oldest spooled line that is a problem
	stalledAfter = 20 * time.Second // time without a delivered line after which a collector is stalled
)

type streamKey struct{ kind, name string }

// observed is the history of a stream, guarded by Account.mu.
type observed struct {
	api.LogStream                      // at the last observation
	lost          map[string]time.Time // last drops, by cause
	refused       time.Time            // last refused sender
	moved         time.Time            // last change of the directory
	progress      time.Time            // last time when a line was delivered or none was pending
	seen          time.Time
}

// observe compares the streams with the last observation.
func (a *Account) observe() {
	list := a.o.Streams()
	now := a.o.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = now
	for i := range list {
		s := &list[i]
		k := streamKey{s.Kind, s.Name}
		o := a.streams[k]
		if o == nil || s.In < o.In { // also a new stream with the name of another one
			next := &observed{lost: map[string]time.Time{}, progress: now}
			if o != nil {
				next.lost, next.moved = o.lost, o.moved
			}
			o = next
			a.streams[k] = o
		}
		for cause, n := range s.Dropped {
			if n > o.Dropped[cause] {
				o.lost[cause] = now
			}
		}
		if s.Refused > o.Refused {
			o.refused = now
		}
		if s.DirectoryChanges > o.DirectoryChanges {
			o.moved = now
		}
		if s.Written != o.Written || s.Spooled+s.InFlight == 0 {
			o.progress = now
		}
		o.LogStream, o.seen = *s, now
	}
	maps.DeleteFunc(a.streams, func(_ streamKey, o *observed) bool {
		return !o.seen.Equal(now) && (now.Sub(o.seen) > lossFor || len(o.lost) == 0 && o.refused.IsZero() && o.moved.IsZero())
	})
}

// collector reports whether the stream sends lines to a collector.
func (o *observed) collector() bool { return o.Kind == api.LogForwarder || o.Kind == api.LogOTLP }

// Stalled returns for how long collectors have acknowledged no line although lines wait for them,
// by destination.
func (a *Account) Stalled() map[string]time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]time.Duration{}
	now := a.o.Now()
	for _, o := range a.streams {
		if o.collector() && o.seen.Equal(a.at) {
			out[o.Destination] = max(out[o.Destination], now.Sub(o.progress))
		}
	}
	return out
}

// Full returns the number of files and spools that cannot be written by the mount point of their
// full file system.
func (a *Account) Full() map[string]int {
	found := map[string]map[string]bool{} // destinations by mount point
	list := a.o.Streams()
	for i := range list {
		if s := &list[i]; s.Full != "" {
			if found[s.Full] == nil {
				found[s.Full] = map[string]bool{}
			}
			found[s.Full][s.Destination] = true
		}
	}
	out := map[string]int{}
	for mount, destinations := range found {
		out[mount] = len(destinations)
	}
	return out
}
