// Package drains knows how long the Envoys of this node keep replaced filter chains, and measures
// whether connections still use them. It asks Envoys only for questions of users. It is safe for
// concurrent use.
package drains

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/host/tcptable"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Limits of questions to Envoys. One answer takes at most a second.
const (
	atOnce   = 8
	patience = time.Second // for all answers; the remaining Envoys are asked by the next question
	retry    = time.Minute // after an Envoy did not answer
)

// Envoy is an Envoy with its admin interface: envoyadmin.Envoy.
type Envoy interface {
	DrainSettings(context.Context) (api.DrainSettings, error)
	Draining(context.Context) (api.DrainingListeners, error)
}

// Options configures [Drains]. Peer, Envoy, and Listeners are required.
type Options struct {
	// Peer returns the process of an Envoy, and false if it has no stream.
	Peer func(node.Key) (access.Peer, bool)
	// Envoy returns the Envoy of a stream.
	Envoy func(id string, peer access.Peer) Envoy
	// Listeners returns the listeners that an Envoy accepted last: [rollout.Proxies.Listeners].
	Listeners func(node.Key) []*draft.Resource
	// Sockets returns the sockets in the network namespace of a process. Nil reads /proc.
	Sockets func(pid int32) (*tcptable.Table, error)
	Now     func() time.Time // nil: time.Now
	Log     *slog.Logger     // nil: none
}

// Drains knows the drain settings of Envoys and their old connections.
type Drains struct {
	o  Options
	mu sync.Mutex // held during questions, so that concurrent readers share the answers
	of map[node.Key]*envoy

	measuring sync.Mutex // held during measurements, for the same reason; locked before mu
	seen      map[node.Key]*observed
}

// envoy is one process of an Envoy.
type envoy struct {
	pid      int32
	settings Settings
	known    bool
	retry    time.Time // not asked before
	old      map[drainID]*baseline
}

// Settings say how an Envoy drains.
type Settings struct {
	api.DrainSettings
	// Unknown says why Envoy has not reported its settings. The others are then Envoy's defaults,
	// an upper bound unless its command line has a longer time.
	Unknown string
}

// New returns Drains that know nothing.
func New(o Options) *Drains {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Sockets == nil {
		o.Sockets = func(pid int32) (*tcptable.Table, error) { return tcptable.Read("/proc", pid) }
	}
	return &Drains{o: o, of: map[node.Key]*envoy{}, seen: map[node.Key]*observed{}}
}

// Until returns when the connections of a drain have ended at the latest.
func (s Settings) Until(since time.Time) time.Time { return since.Add(s.Time + rollout.DrainSlack) }

// Settings returns the settings of Envoys. It asks each process once, for at most a second in all.
// It is the same for a nil receiver, which knows none.
func (d *Drains) Settings(ctx context.Context, keys []node.Key) map[node.Key]Settings {
	out := map[node.Key]Settings{}
	if d == nil {
		for _, key := range keys {
			out[key] = unknown("the agent does not ask it")
		}
		return out
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.learn(ctx, keys)
	for _, key := range keys {
		if e := d.of[key]; e != nil {
			out[key] = e.settings
		} else {
			out[key] = unknown("it is not connected")
		}
	}
	return out
}

// Live returns listeners of an Envoy with the time until which connections may use their previous
// filter chains, without those whose time is over.
func (d *Drains) Live(ctx context.Context, key node.Key, list []rollout.Draining) (out []explain.Draining) {
	if len(list) == 0 {
		return nil
	}
	settings, now := d.Settings(ctx, []node.Key{key})[key], time.Now()
	if d != nil {
		now = d.o.Now()
	}
	for _, x := range list {
		if until := settings.Until(x.Since); until.After(now) {
			out = append(out, explain.Draining{Listener: x.Listener, Until: until, Assumed: settings.Unknown})
		}
	}
	return out
}

func unknown(why string) Settings {
	return Settings{DrainSettings: api.DefaultDrain, Unknown: cmp.Or(why, "it has not been asked yet")}
}

// process returns the state of the connected process of an Envoy, nil for none. mu is held.
func (d *Drains) process(key node.Key) (*envoy, access.Peer) {
	peer, connected := d.o.Peer(key)
	if !connected {
		delete(d.of, key)
		return nil, peer
	}
	e := d.of[key]
	if e == nil || e.pid != peer.PID {
		e = &envoy{pid: peer.PID, settings: unknown(""), old: map[drainID]*baseline{}}
		d.of[key] = e
	}
	return e, peer
}

// learn asks the Envoys whose settings are unknown. mu is held.
func (d *Drains) learn(ctx context.Context, keys []node.Key) {
	type question struct {
		key  node.Key
		peer access.Peer
		pod  bool // nothing can be done about it
		envoy
	}
	var due []*question
	began := d.o.Now()
	for _, key := range keys {
		if e, peer := d.process(key); e != nil && !e.known && !began.Before(e.retry) {
			due = append(due, &question{key: key, peer: peer})
		}
	}
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, q := range due {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			got, err := d.o.Envoy(q.key.ID, q.peer).DrainSettings(ctx)
			if q.settings, q.known = (Settings{DrainSettings: got}), err == nil; err != nil {
				q.settings, q.pod = unknown(err.Error()), errors.Is(err, access.ErrPodAdmin)
			}
			return nil
		})
	}
	_ = g.Wait()
	for _, q := range due {
		e := d.of[q.key]
		switch {
		case q.known:
			e.settings, e.known = q.settings, true
		case q.settings.Unknown != "":
			if e.retry.IsZero() && !q.pod {
				d.o.Log.Info("an Envoy does not report its drain time; the agent assumes Envoy's default", "node", q.key.ID,
					"error", q.settings.Unknown, "drainTime", q.settings.Time)
			}
			e.settings, e.retry = q.settings, began.Add(retry)
		}
	}
}
