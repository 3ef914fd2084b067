package engine

import (
	"maps"
	"strconv"
	"time"
)

// Config of an engine. Self and Random are required.
type Config struct {
	Self   NodeID
	Member string        // own member name; empty: MemberName of the epoch that this boot gets
	Name   string        // of the node, for people
	Random func(int) int // a number from 0 up to, but not, its argument
	Limits Limits        // zero values stand for the defaults
}

// Limits bound what an engine keeps and takes. Zero values stand for the defaults in brackets.
type Limits struct {
	Horizon       time.Duration // how long tombstones are kept [30 days]
	WriterRecords int           // records of one writer [10,000]
	WriterBytes   int           // and their bytes [32 MiB]
	Bytes         int           // of everything [512 MiB]
	Conflicts     int           // versions that lost [1,000]
	Parked        int           // records that are dated in the future [1,000]
	Limbo         int           // records that may have been deleted long ago [1,000]
	Tombstones    int           // above it, local deletions are refused [200,000]
}

// Figures of the protocol.
const (
	pushCopies     = 3                     // peers that a small change is sent to at once
	announceCopies = 6                     // peers that a large one is announced to at once
	rumorCopies    = 3                     // peers that each round of announcements goes to
	rumorRounds    = 4                     // of announcements, for those that the first copies have missed
	rumorInterval  = 25 * time.Millisecond // between rounds
	maxRumors      = 8192                  // waiting for a round
	pushRate       = 50                    // small changes a second that are sent unasked; more are announced
	maxSkew        = 10 * time.Second      // how far in the future a record may be dated
	refusedFor     = 10 * time.Minute      // a version that was refused is not asked for again
	maxRefused     = 16384                 // versions that are remembered as refused
	conflictsEach  = 3                     // versions that lost, by key
	conflictsFor   = 7 * 24 * time.Hour    // they are kept
	forgetFor      = 180 * 24 * time.Hour  // the mark of a forgotten node is kept
	goneAfter      = 24 * time.Hour        // a dead node is forgotten
	peerRate       = 500                   // entries a second that are taken unasked from one peer
	peerBurst      = 5000
	settleTime     = 250 * time.Millisecond // after a change, in which a difference may settle by itself
	unsureFor      = time.Minute            // after the clock was set, nothing expires
	catchUp        = time.Minute            // after it has come, a node passes nothing on before it has agreed with a peer
	joinTries      = 4                      // comparisons after this node has come
	joinEvery      = 150 * time.Millisecond // between them
	syncRate       = 4                      // comparisons that are started in a second
)

func (l Limits) withDefaults() Limits {
	set := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	if l.Horizon == 0 {
		l.Horizon = 30 * 24 * time.Hour
	}
	set(&l.WriterRecords, 10000)
	set(&l.WriterBytes, 32<<20)
	set(&l.Bytes, 512<<20)
	set(&l.Conflicts, 1000)
	set(&l.Parked, 1000)
	set(&l.Limbo, 1000)
	set(&l.Tombstones, 200000)
	return l
}

// Event is something that has happened. The types below implement it.
type Event interface{ event() }

type (
	// Received is a message of a peer. Data must not be changed any more.
	Received struct{ Data []byte }
	// Acked is what a probe of a peer has brought: the answer to AckPayload.
	Acked struct {
		Member  string
		Payload []byte
		RTT     time.Duration
	}
	// PeerUp says that a member is there: new, or again.
	PeerUp struct {
		Member string
		Node   NodeID
	}
	// PeerDown says that a member does not answer any more.
	PeerDown struct{ Member string }
	// Tick says that the time of Next has come.
	Tick struct{}
	// Committed says that records of Prepare are on disk.
	Committed struct{ Records []*Record }
	// Own sets all that this node owns. With Leaving, the node leaves, and what it owns is what stays
	// of it.
	Own struct {
		Items   []OwnItem
		Leaving bool
	}
	// Forget says that a node is gone for good.
	Forget struct{ Node NodeID }
	// Vouch says that what a dead node owns was reached: the node is not forgotten for being dead.
	Vouch struct{ Node NodeID }
)

// OwnItem is one thing that this node owns.
type OwnItem struct {
	Key  Key
	Body []byte
}

func (Received) event()  {}
func (Acked) event()     {}
func (PeerUp) event()    {}
func (PeerDown) event()  {}
func (Tick) event()      {}
func (Vouch) event()     {}
func (Committed) event() {}
func (Own) event()       {}
func (Forget) event()    {}

// Actions are what a step asks for, to be done in the order of the fields.
type Actions struct {
	Durable []Op // to be on disk before anything is sent
	Write   []Op // to be written in their order, soon
	Send    []Send
	Changed []Change
	Notes   []Note
}

// Send is a message to a member.
type Send struct {
	To   string
	Data []byte
	// Stream asks for a way that does not lose messages one by one. It is set for those that are
	// longer than MaxPacket, and for those that are sent again.
	Stream bool
}

// Change says of what there is a new version: of a record, or of what a node owns.
type Change struct {
	Key  Key // zero for a node
	Node NodeID
}

// Note is something that people should see. Text is a sentence, What a stable name.
type Note struct{ What, Text string }

// entry is what is known of a slot: a record or a manifest.
type entry struct {
	head     Head
	record   *Record
	manifest *Manifest
}

type body struct {
	data []byte
	refs int
}

// Engine is the state of one node. It is not safe for concurrent use.
type Engine struct {
	cfg     Config
	now     time.Time
	entries map[Slot]*entry
	tree    tree
	bytes   int // of records, manifests and bodies
	bodies  map[BodyHash]*body
	usage   map[Writer]*usage
	tombs   int

	conflicts conflicts
	parked    map[Slot]*Record
	limbo     map[Slot]*Record
	refused   map[Head]time.Time // until when

	peers    map[string]*peer
	alive    []string // members that are up, in no order
	skew     time.Duration
	agreed   time.Time // last time that a peer had the same root
	agreedOn time.Time // what is on disk of it
	cut      HLC       // tombstones before it are dropped
	changed  time.Time // when the root changed last
	settling bool      // a difference was left to what is on its way
	unsure   time.Time // until when the clock was set too lately to let anything expire by it
	starts   bucket    // of comparisons

	met       bool // this boot has agreed with a peer
	joinTries int  // comparisons that are still to be started after this node has come
	joinAt    time.Time
	firstPeer time.Time

	wants    wants
	pending  map[Slot]*pending
	rumors   rumors
	push     bucket
	own      own
	live     liveness
	nextRun  time.Time // of tasks that are not urgent
	counters map[string]uint64
	out      Actions
	news     []news
}

type usage struct{ records, bytes int }

// New returns an engine with what is on disk, and what is to be done first.
func New(cfg Config, now time.Time, saved []Op) (*Engine, Actions) {
	cfg.Limits = cfg.Limits.withDefaults()
	e := &Engine{cfg: cfg, now: now, entries: map[Slot]*entry{}, bodies: map[BodyHash]*body{}, usage: map[Writer]*usage{},
		parked: map[Slot]*Record{}, limbo: map[Slot]*Record{}, refused: map[Head]time.Time{}, peers: map[string]*peer{},
		pending: map[Slot]*pending{}, counters: map[string]uint64{}}
	e.conflicts.bySlot = map[Slot][]*Conflict{}
	e.wants.init()
	e.rumors.heads = map[Slot]*rumor{}
	e.live = liveness{nodes: map[NodeID]*nodeLife{}, start: now, self: cfg.Self}
	e.starts = bucket{rate: syncRate, burst: syncRate, level: syncRate, at: now}
	e.push = bucket{rate: pushRate, burst: pushRate, level: pushRate, at: now}
	e.load(saved)
	e.expire()
	e.startEpoch()
	if e.cfg.Member == "" {
		e.cfg.Member = MemberName(cfg.Self, e.own.epoch)
	}
	return e, e.take()
}

// MemberName is the name of a node in one boot: another one with each, so that a new address or a
// count that starts again is never held against what peers remember.
func MemberName(n NodeID, epoch uint64) string {
	return n.String() + "-" + strconv.FormatUint(epoch, 16)
}

// Member returns the own member name.
func (e *Engine) Member() string { return e.cfg.Member }

// Step takes an event. The time must be that of the wall clock; it may jump either way.
func (e *Engine) Step(now time.Time, ev Event) Actions {
	if d := now.Sub(e.now); d < -time.Second || d > maxSkew {
		e.clockMoved(d)
	}
	e.now = now
	switch ev := ev.(type) {
	case Received:
		e.receive(ev.Data)
	case Acked:
		e.acked(ev)
	case PeerUp:
		e.peerUp(ev)
	case PeerDown:
		e.peerDown(ev)
	case Committed:
		e.committed(ev.Records)
	case Own:
		e.setOwn(ev)
	case Forget:
		e.forget(ev.Node, "by request")
	case Vouch:
		e.live.node(ev.Node).vouched = now
	case Tick:
	}
	e.run()
	e.spread()
	e.ask()
	return e.take()
}

// Next returns when a Tick is due.
func (e *Engine) Next() time.Time {
	at := e.nextRun
	if len(e.rumors.queue) > 0 && e.rumors.at.Before(at) {
		at = e.rumors.at
	}
	if e.joinTries > 0 && e.joinAt.Before(at) {
		at = e.joinAt
	}
	if t := e.wants.due(e.now); !t.IsZero() && t.Before(at) {
		at = t
	}
	return at
}

func (e *Engine) take() Actions {
	out := e.out
	e.out = Actions{}
	return out
}

func (e *Engine) note(what, text string) { e.out.Notes = append(e.out.Notes, Note{what, text}) }

func (e *Engine) count(what string) { e.counters[what]++ }

// judged is the time by the clocks of most peers, or by the own one where fewer than three are
// known. Records are dated, parked and expired by it, so that a node whose clock is wrong neither
// misses changes nor forgets deletions.
func (e *Engine) judged() time.Time { return e.now.Add(e.skew) }

// send encodes a message.
func (e *Engine) send(to string, m message) {
	m.From = e.cfg.Member
	if !e.agreed.IsZero() {
		m.Agreed = uint64(max(e.agreed.UnixMilli(), 0))
	}
	data := m.encode()
	e.out.Send = append(e.out.Send, Send{to, data, m.Stream || len(data) > MaxPacket})
}

// run does what is due by time.
func (e *Engine) run() {
	if !e.rumors.at.After(e.now) {
		e.rumorRound()
	}
	e.expireWants()
	if e.joinTries > 0 && !e.joinAt.After(e.now) {
		e.joinTries, e.joinAt = e.joinTries-1, e.now.Add(joinEvery)
		for _, m := range e.pick(1, "") {
			e.startSync(e.peers[m], nil)
		}
	}
	if e.nextRun.After(e.now) && e.nextRun.Sub(e.now) <= time.Second {
		return
	}
	e.nextRun = e.now.Add(time.Second)
	e.releaseParked()
	maps.DeleteFunc(e.refused, func(_ Head, until time.Time) bool {
		return !until.After(e.now) || until.Sub(e.now) > refusedFor // the clock went back
	})
	e.expirePending()
	e.live.look(e.now)
	if !e.unsure.After(e.now) || e.unsure.Sub(e.now) > unsureFor {
		e.expire()
		for _, n := range e.live.gone(e.now) {
			e.forget(n, "dead for "+goneAfter.String())
		}
	}
	if e.agreed.Sub(e.agreedOn) >= 10*time.Minute {
		e.agreedOn = e.agreed
		e.out.Write = append(e.out.Write, Op{Bucket: bucketMeta, Key: metaAgreed, Value: putTime(e.agreed)})
	}
}
