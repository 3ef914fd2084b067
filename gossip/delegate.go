package gossip

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/nearside-mesh/nearside/gossip/engine"
)

// delegate implements memberlist's callbacks. memberlist may hold locks during a callback, so these
// methods do not block and do not call memberlist: they queue events.
type delegate struct {
	n    *Node
	self *self // the identity in this membership
	meta []byte
}

var (
	_ memberlist.Delegate      = delegate{}
	_ memberlist.EventDelegate = delegate{}
	_ memberlist.PingDelegate  = delegate{}
	_ memberlist.AliveDelegate = delegate{}

	_ memberlist.ConflictDelegate = delegate{}
)

// memberlistConfig returns memberlist's LAN configuration, with a name for each start, no
// compression, no state in push/pull, and a fixed delegate protocol version.
func (n *Node) memberlistConfig(t memberlist.NodeAwareTransport) (*memberlist.Config, error) {
	c := memberlist.DefaultLANConfig()
	d := delegate{n: n, self: n.self.Load()}
	c.Name = d.self.member
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
	ip, port, err := t.FinalAdvertiseAddr(c.AdvertiseAddr, c.AdvertisePort)
	if err != nil {
		return nil, err
	}
	d.meta = d.self.meta.encode()
	if d.self.signer != nil {
		addr := addrOf(&memberlist.Node{Addr: ip, Port: uint16(port)}) // #nosec G115 -- a port
		if d.meta, err = d.self.meta.sign(d.self.signer, n.opt.Cluster, addr); err != nil {
			return nil, err
		}
	}
	c.LogOutput = &logWriter{log: n.opt.Log}
	c.Delegate, c.Events, c.Ping, c.Alive, c.Conflict = d, d, d, d, d
	c.Keyring = n.ring
	return c, nil
}

// NodeMeta returns the metadata of this node.
func (d delegate) NodeMeta(int) []byte { return d.meta }

// NotifyMsg queues a message from a peer.
func (d delegate) NotifyMsg(b []byte) {
	if d.n.handleFrame(b) {
		return
	}
	select {
	case d.n.inbox <- engine.Received{Data: append(make([]byte, 0, len(b)), b...)}:
	default:
		d.n.counters.inboxFull.Add(1)
	}
}

// GetBroadcasts returns nothing: memberlist's queue carries only membership.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing: push/pull carries only membership.
func (d delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState does nothing: push/pull carries only membership.
func (d delegate) MergeRemoteState([]byte, bool) {}

// NotifyAlive rejects members whose metadata is invalid, does not match their name or address, or
// has no signature although this node knows the key. Other reasons against a member are no matter
// of memberlist, so all nodes have the same list: see [Node.refuse].
func (d delegate) NotifyAlive(o *memberlist.Node) error {
	m, err := decodeMeta(o.Meta)
	switch {
	case err != nil:
	case o.Name != m.member():
		err = errName
	case d.n.crowded(o.Name):
		err = errMany
	default:
		err = d.n.identities.check(o, &m, d.n.opt.Cluster)
	}
	if err != nil {
		d.n.counters.badMember.Add(1)
	}
	return err
}

// crowded reports whether there are too many live members for another one.
func (n *Node) crowded(name string) bool {
	n.memberMu.Lock()
	defer n.memberMu.Unlock()
	return !n.live[name] && len(n.live) > 2*n.opt.rosterLimit
}

// NotifyJoin records that a member is alive.
func (d delegate) NotifyJoin(o *memberlist.Node) { d.noteMember(o, true) }

// NotifyUpdate records new metadata of a member.
func (d delegate) NotifyUpdate(o *memberlist.Node) { d.noteMember(o, true) }

// NotifyLeave records that a member is dead or has left.
func (d delegate) NotifyLeave(o *memberlist.Node) { d.noteMember(o, false) }

// noteMember queues a membership change, unless this node has taken another ID.
func (d delegate) noteMember(o *memberlist.Node, up bool) {
	if d.self == d.n.self.Load() {
		d.n.noteMember(o, up)
	}
}

// NotifyConflict records another process with the member name of this node.
func (d delegate) NotifyConflict(_, other *memberlist.Node) {
	if addr := addrOf(other); addr.IsValid() && other.Name == d.self.member && d.self == d.n.self.Load() {
		d.n.queueRival(memberEvent{name: other.Name, meta: d.self.meta, addr: addr, up: true, same: true})
	}
}

// AckPayload returns the payload of a probe response: the root of all entries and a hash of the
// members.
func (d delegate) AckPayload() []byte {
	root := d.n.root.Load()
	b := binary.BigEndian.AppendUint64(engine.AckPayload(*root, d.n.wall()), d.n.membersHash.Load())
	if d.self.signer != nil {
		b = d.n.identities.signAck(b, d.self)
	}
	return b
}

// NotifyPingComplete compares a probe response with the local state.
func (d delegate) NotifyPingComplete(o *memberlist.Node, rtt time.Duration, payload []byte) {
	if d.self != d.n.self.Load() {
		return
	}
	if d.n.packets.acked(o.Name, time.Now()) {
		d.n.opt.Log.Info("members acknowledge UDP packets again")
	}
	if len(payload) < engine.AckSize+8 {
		return
	}
	if !d.n.identities.checkAck(o.Name, payload) {
		d.n.counters.forged.Add(1)
		return
	}
	d.n.compareMembers(o, binary.BigEndian.Uint64(payload[engine.AckSize:]))
	select {
	case d.n.inbox <- engine.Acked{Member: o.Name, Payload: append([]byte(nil), payload...), RTT: rtt}:
	default:
		d.n.counters.inboxFull.Add(1)
	}
}

// memberHash returns the contribution of a member to the hash of all members. The sum does not
// depend on their order.
func memberHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	x := h.Sum64() // plain FNV is too regular for names that differ in one digit
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// lineLimit limits logging to logRate lines per second, so peers cannot fill the disk.
type lineLimit struct {
	mu    sync.Mutex
	since time.Time // mu
	lines int       // mu; since the time in since
}

const logRate = 20

// allow reports whether a line may be logged now, and how many lines were dropped in the previous
// second.
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

// logWriter forwards memberlist's log.
type logWriter struct {
	log   *slog.Logger
	limit lineLimit
}

// Write logs one line. memberlist's logger serializes calls.
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
		w.log.Warn("membership: log lines dropped", "dropped", dropped)
	}
	if ok {
		w.log.Log(context.Background(), level, "membership: "+strings.TrimPrefix(text, "memberlist: "))
	}
	return len(b), nil
}
