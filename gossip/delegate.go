package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// delegate is what memberlist calls. It may hold its locks meanwhile, so nothing here waits or
// calls it back: events go into queues.
type delegate struct{ n *Node }

var (
	_ memberlist.Delegate      = delegate{}
	_ memberlist.EventDelegate = delegate{}
	_ memberlist.PingDelegate  = delegate{}
	_ memberlist.AliveDelegate = delegate{}
)

// memberlistConfig is the LAN configuration of memberlist, with what makes it robust here: a name
// for each boot, no compression, no state in push/pull, one delegate protocol for ever.
func (n *Node) memberlistConfig(t memberlist.NodeAwareTransport) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = n.member
	c.Transport = t
	c.BindPort = 0
	c.AdvertisePort = int(n.opt.Advertise.Port())
	if n.opt.Advertise.Addr().IsValid() && !n.opt.Advertise.Addr().IsUnspecified() {
		c.AdvertiseAddr = n.opt.Advertise.Addr().String()
	}
	c.Label = "nearside/" + n.opt.Cluster
	c.EnableCompression = false
	c.UDPBufferSize = 1200
	c.TCPTimeout = 4 * time.Second
	c.GossipInterval = 100 * time.Millisecond
	c.GossipNodes = 4
	c.HandoffQueueDepth = 4096
	c.DelegateProtocolVersion, c.DelegateProtocolMin, c.DelegateProtocolMax = 0, 0, 0
	c.LogOutput = &logWriter{log: n.opt.Log}
	c.Delegate, c.Events, c.Ping, c.Alive = delegate{n}, delegate{n}, delegate{n}, delegate{n}
	c.Keyring = n.ring
	return c
}

// NodeMeta says who this node is.
func (d delegate) NodeMeta(int) []byte { return d.n.meta.encode() }

// NotifyMsg takes a message of a peer.
func (d delegate) NotifyMsg(b []byte) {
	if d.n.frame(b) {
		return
	}
	select {
	case d.n.inbox <- engine.Received{Data: append(make([]byte, 0, len(b)), b...)}:
	default:
		d.n.counters.inboxFull.Add(1)
	}
}

// GetBroadcasts returns nothing: memberlist's queue carries membership alone.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing: push/pull carries membership alone.
func (d delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what a peer sends, for the same reason.
func (d delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive refuses members that are not what they say.
func (d delegate) NotifyAlive(o *memberlist.Node) error {
	m, err := decodeMeta(o.Meta)
	if err != nil {
		d.n.counters.badMember.Add(1)
		return err
	}
	if o.Name != m.member() {
		d.n.counters.badMember.Add(1)
		return errors.New("the name is not that of its node and epoch")
	}
	return nil
}

// NotifyJoin notes that a member is there.
func (d delegate) NotifyJoin(o *memberlist.Node) { d.n.noteMember(o, true) }

// NotifyUpdate notes that a member has new metadata.
func (d delegate) NotifyUpdate(o *memberlist.Node) { d.n.noteMember(o, true) }

// NotifyLeave notes that a member is dead or has left.
func (d delegate) NotifyLeave(o *memberlist.Node) { d.n.noteMember(o, false) }

// AckPayload answers a probe with the root of all entries and a hash of the members.
func (d delegate) AckPayload() []byte {
	root := d.n.root.Load()
	return binary.BigEndian.AppendUint64(engine.AckPayload(*root, time.Now()), d.n.membersHash.Load())
}

// NotifyPingComplete compares what an answer to a probe says with what is known here.
func (d delegate) NotifyPingComplete(o *memberlist.Node, rtt time.Duration, payload []byte) {
	if len(payload) < engine.AckSize+8 {
		return
	}
	d.n.compareMembers(o, binary.BigEndian.Uint64(payload[engine.AckSize:]))
	select {
	case d.n.inbox <- engine.Acked{Member: o.Name, Payload: append([]byte(nil), payload...), RTT: rtt}:
	default:
		d.n.counters.inboxFull.Add(1)
	}
}

// memberHash is what a member adds to the hash of all: the sum does not depend on their order.
func memberHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // FNV alone is too regular for names that differ in one digit
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// lineLimit bounds the lines of a log to logRate a second: what peers send must not fill the disk.
type lineLimit struct {
	mu    sync.Mutex
	since time.Time // mu
	lines int       // mu; in the second from since on
}

const logRate = 20

// allow reports whether a line may be logged now, and how many could not in the second before.
func (l *lineLimit) allow(now time.Time) (ok bool, dropped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := now.Sub(l.since); d >= time.Second || d < 0 {
		dropped = max(l.lines-logRate, 0)
		l.since, l.lines = now, 0
	}
	l.lines++
	return l.lines <= logRate, dropped
}

// logWriter passes memberlist's log on.
type logWriter struct {
	log   *slog.Logger
	limit lineLimit
}

// Write takes one line. memberlist's logger calls it for one at a time.
func (w *logWriter) Write(b []byte) (int, error) {
	level, text := slog.LevelInfo, strings.TrimSpace(string(b))
	for _, l := range []struct {
		mark  string
		level slog.Level
	}{
		{"[DEBUG] ", slog.LevelDebug}, {"[INFO] ", slog.LevelDebug}, {"[WARN] ", slog.LevelInfo}, {"[ERR] ", slog.LevelWarn},
		{"[ERROR] ", slog.LevelWarn},
	} {
		if _, after, ok := strings.Cut(text, l.mark); ok {
			level, text = l.level, after
			break
		}
	}
	if !w.log.Enabled(context.Background(), level) {
		return len(b), nil
	}
	ok, dropped := w.limit.allow(time.Now())
	if dropped > 0 {
		w.log.Warn("membership: more lines than are logged", "dropped", dropped)
	}
	if ok {
		w.log.Log(context.Background(), level, "membership: "+strings.TrimPrefix(text, "memberlist: "))
	}
	return len(b), nil
}
