package drains

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/host/tcptable"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// workerDelay is the time between the answer of Envoy that new listeners are in use and the first
// count of connections: its workers switch to them a few milliseconds later.
const workerDelay = 20 * time.Millisecond

// fresh is how long concurrent measurements share their observations.
const fresh = 100 * time.Millisecond

// Question asks for the older connections of a drain.
type Question struct {
	Key   node.Key
	Drain rollout.Drain
}

// Old are the connections that may still use replaced filter chains.
type Old struct {
	Ended bool
	Until time.Time // latest end, as of now
	// Connections is how many are left at most, -1 if they cannot be counted. Reason says why.
	Connections int
	Reason      string
}

// observed is what the node says about an Envoy.
type observed struct {
	gauges api.DrainingListeners
	err    error
	table  *tcptable.Table
	failed error // there is no table
	at     time.Time
}

// baseline are the connections that were open when Envoy had just replaced filter chains, without
// those that have been closed since.
type baseline struct {
	warming time.Time // when new listeners were last seen not to be in use; zero for never
	ended   bool
	conns   map[tcptable.Conn]bool // nil before it is taken
}

// drainID identifies a drain of an Envoy.
type drainID struct {
	since     int64
	listeners string
}

// Measure returns the older connections of drains. It asks each Envoy what drains, and compares the
// connections of its listeners with those of the first measurement. It takes two seconds at most.
func (d *Drains) Measure(ctx context.Context, questions []Question) []Old {
	keys, since := make([]node.Key, len(questions)), map[node.Key]time.Time{}
	for i, q := range questions {
		keys[i] = q.Key
		if q.Drain.Since.After(since[q.Key]) {
			since[q.Key] = q.Drain.Since
		}
	}
	settings := d.Settings(ctx, keys)
	out := make([]Old, len(questions))
	if d == nil {
		for i, q := range questions {
			until := settings[q.Key].Until(q.Drain.Since)
			out[i] = Old{Ended: !time.Now().Before(until), Until: until, Connections: -1,
				Reason: "the agent does not ask its Envoy"}
		}
		return out
	}
	d.measuring.Lock()
	defer d.measuring.Unlock()
	seen := d.observe(ctx, since)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, q := range questions {
		e, _ := d.process(q.Key)
		if e == nil || seen[q.Key] == nil {
			out[i] = Old{Until: settings[q.Key].Until(q.Drain.Since), Connections: -1,
				Reason: "its Envoy is not connected, so its connections cannot be counted"}
			continue
		}
		out[i] = e.left(q.Drain, seen[q.Key], d.o.Listeners(q.Key), d.o.Now())
	}
	return out
}

// observe asks Envoys and reads their sockets, after drains that have begun at these times.
// measuring is held.
func (d *Drains) observe(ctx context.Context, since map[node.Key]time.Time) map[node.Key]*observed {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out := map[node.Key]*observed{}
	var g errgroup.Group
	g.SetLimit(atOnce)
	now := d.o.Now()
	for key, x := range d.seen {
		if now.Sub(x.at) > fresh {
			delete(d.seen, key)
		}
	}
	for key, after := range since {
		peer, connected := d.o.Peer(key)
		if x := d.seen[key]; !connected || x != nil && x.at.After(after) {
			out[key] = x
			continue
		}
		x := &observed{at: now}
		out[key], d.seen[key] = x, x
		g.Go(func() error {
			x.gauges, x.err = d.o.Envoy(key.ID, peer).Draining(ctx)
			select {
			case <-time.After(workerDelay):
			case <-ctx.Done():
			}
			if !peer.Local || peer.Foreign || peer.PID <= 0 {
				x.failed = errors.New("the process of its Envoy is unknown")
			} else {
				x.table, x.failed = d.o.Sockets(peer.PID)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are in out
	return out
}

// left returns the older connections of a drain.
func (e *envoy) left(drain rollout.Drain, x *observed, listeners []*draft.Resource, now time.Time) Old {
	id := drainID{drain.Since.UnixNano(), strings.Join(drain.Listeners, " ")}
	b := e.old[id]
	if b == nil {
		e.forget(now)
		b = &baseline{}
		e.old[id] = b
	}
	if x.err == nil && x.gauges.Warming > 0 && !b.ended {
		b.warming, b.conns = now, nil
	}
	out := Old{Until: e.settings.Until(drain.Since), Connections: -1}
	if b.warming.After(drain.Since) {
		out.Until = e.settings.Until(b.warming)
	}
	if b.ended || !now.Before(out.Until) || x.err == nil && x.gauges == (api.DrainingListeners{}) {
		b.ended, b.conns = true, nil
		return Old{Ended: true}
	}
	switch {
	case b.warming.Equal(now):
		out.Reason = "new listeners wait for something that they need, and the old ones are in use until then"
		return out
	case drain.Unsure:
		out.Reason = "its Envoy drains listeners that a previous agent has replaced"
		return out
	case x.err != nil && e.known && !errors.Is(x.err, access.ErrPodAdmin): // it responded before
		out.Reason = "its Envoy does not report its draining listeners: " + x.err.Error()
		return out
	case x.err != nil && now.Before(drain.Since.Add(rollout.DrainSlack)): // it never reports anything
		out.Reason = "its new listeners may not be in use yet"
		return out
	}
	if out.Connections, out.Reason = b.count(drain, x, listeners); out.Connections == 0 {
		b.ended, b.conns = true, nil
		return Old{Ended: true}
	}
	return out
}

// count counts the old connections that are open.
func (b *baseline) count(drain rollout.Drain, x *observed, listeners []*draft.Resource) (int, string) {
	match, why := addresses(drain.Listeners, listeners)
	switch {
	case why != "":
		return -1, "its connections cannot be counted: " + why
	case x.failed != nil:
		return -1, "its connections cannot be counted: " + x.failed.Error()
	}
	open := map[tcptable.Conn]bool{}
	for _, c := range x.table.Open {
		if (b.conns == nil || b.conns[c]) && match.has(c.Local) {
			open[c] = true
		}
	}
	b.conns = open
	return len(open), ""
}

// local are addresses of listeners; an unspecified address means all of its port.
type local map[netip.AddrPort]bool

func (l local) has(at netip.AddrPort) bool {
	return l[at] || l[netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())] ||
		l[netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())]
}

// passthroughPrefix follows the direction in the names of listeners for redirected traffic.
const passthroughPrefix = "passthrough:"

// addresses returns the local addresses of the connections of listeners. Redirected connections
// have the address of the listener for redirected traffic.
func addresses(names []string, accepted []*draft.Resource) (out local, why string) {
	if names == nil {
		return nil, "too many listeners have changed at once"
	}
	out = local{}
	directions, found := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		direction, address, _ := strings.Cut(name, ":")
		directions[direction] = true
		if strings.HasPrefix(address, passthroughPrefix) {
			continue
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, fmt.Sprintf("the name of listener %q has no address", name)
		}
		out[at] = true
	}
	for _, r := range accepted {
		direction, rest, _ := strings.Cut(r.Name, ":")
		if !directions[direction] || !strings.HasPrefix(rest, passthroughPrefix) {
			continue
		}
		var m listenerv3.Listener
		err := proto.Unmarshal(r.Body(), &m)
		at := m.GetAddress().GetSocketAddress()
		ip, err2 := netip.ParseAddr(at.GetAddress())
		if err != nil || err2 != nil || at.GetPortValue() > 65535 {
			return nil, fmt.Sprintf("listener %q has no address", r.Name)
		}
		out[netip.AddrPortFrom(ip, uint16(at.GetPortValue()))], found[r.Name] = true, true
	}
	for _, name := range names {
		if _, address, _ := strings.Cut(name, ":"); strings.HasPrefix(address, passthroughPrefix) && !found[name] {
			return nil, fmt.Sprintf("listener %q was removed", name)
		}
	}
	return out, ""
}

// forget drops measurements of drains that have ended.
func (e *envoy) forget(now time.Time) {
	for id := range e.old {
		if !now.Before(e.settings.Until(time.Unix(0, id.since)).Add(time.Minute)) {
			delete(e.old, id)
		}
	}
}
