package engine

import (
	"strconv"
	"time"

	"github.com/nearside-mesh/nearside/gossip/engine/bucket"
	"github.com/nearside-mesh/nearside/gossip/engine/heal"
	"github.com/nearside-mesh/nearside/gossip/engine/limits"
	"github.com/nearside-mesh/nearside/gossip/engine/liveness"
	"github.com/nearside-mesh/nearside/gossip/engine/pins"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
	"github.com/nearside-mesh/nearside/gossip/engine/sumtree"
)

// Config configures an engine. Self and Random are required.
type Config struct {
	Self   NodeID
	Member string // own member name; empty: MemberName with the epoch of this start
	Name   string // display name of the node
	// Cluster is part of the content of records and manifests, up to 64 bytes. Those of another
	// cluster are refused. Empty: all are accepted.
	Cluster string
	Random  func(int) int // returns a number in [0, n)
	Limits  Limits        // zero values select the defaults
	// Container is the kind of records to which other entries belong: those whose Mesh is their name.
	// The deletion of such a record waits until no entries of known kinds belong to it. "": none.
	Container string
	Known     func(kind string) bool // nil: all kinds are known
	// Signer signs each record and manifest that this node writes. Its fingerprint must be Self. Nil:
	// they are not signed, like those of earlier builds.
	Signer sign.Signer
	Policy Policy // nil: all records and manifests may be in force
}

// Parameters of the protocol.
const (
	pushCopies     = 3                     // peers that receive a small change at once
	announceCopies = 6                     // peers that receive the announcement of a large change at once
	rumorCopies    = 3                     // peers that receive each round of announcements
	rumorRounds    = 4                     // rounds of announcements, for nodes missed by the first copies
	rumorInterval  = 25 * time.Millisecond // between rounds of announcements
	maxRumors      = 8192                  // announcements that wait for a round
	pushRate       = 50                    // small changes per second sent in full; further changes are announced
	conflictsEach  = 3                     // conflicts per key
	conflictsFor   = 7 * 24 * time.Hour    // lifetime of conflicts
	forgetFor      = 180 * 24 * time.Hour  // lifetime of the mark of a forgotten node
	peerRate       = 500                   // unsolicited entries per second accepted from one peer
	peerBurst      = 5000
	gracePeriod    = 250 * time.Millisecond // after a change; a difference in this time is ignored once
	catchUp        = time.Minute            // a new node forwards nothing in this time before it agrees with a peer
	joinTries      = 4                      // comparisons started after this node joins
	joinEvery      = 150 * time.Millisecond // between them
	syncRate       = 4                      // comparisons started per second
)

// Event is an input of Step.
type Event interface{ event() }

type (
	// Received is a message from a peer. The caller must not modify Data afterwards.
	Received struct{ Data []byte }
	// Acked is a probe response with the AckPayload of a peer.
	Acked struct {
		Member  string
		Payload []byte
		RTT     time.Duration
	}
	// PeerUp means that a member is alive. It may repeat.
	PeerUp struct {
		Member string
		Node   NodeID
		// Name is the display name: the clocks of all members with one name have one vote. Known is the
		// wall time since which this node knows the name; zero: since the first PeerUp of this start.
		Name     string
		Known    time.Time
		Enrolled bool   // an operator vouches for the node, so its clock counts at once
		Features uint64 // optional parts of the protocol that it supports; see Features
	}
	// PeerDown means that a member no longer responds.
	PeerDown struct{ Member string }
	// Tick means that the time returned by Next has come.
	Tick struct{}
	// Committed means that records returned by Prepare are on disk.
	Committed struct{ Records []*Record }
	// Own replaces the items of this node or of a directory. With Leaving, the node leaves
	// permanently, and Items are the remaining ones. The caller must not modify the bodies afterwards.
	Own struct {
		Items   []OwnItem
		Leaving bool
		// Owner is zero for this node, or the ID of a directory. Every node may publish a directory: the
		// last event in the pool is in force. A directory is always served, and Name and Detail describe
		// it.
		Owner        NodeID
		Name, Detail string
	}
	// Forget means that a node has left permanently, or that a directory is no longer published.
	Forget struct{ Node NodeID }
	// Vouch means that items of a dead node were reachable. It prevents the node from being forgotten.
	Vouch struct{ Node NodeID }
)

// OwnItem is an item of this node.
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

// Actions lists the work requested by a step. The caller executes it in the order of the fields.
type Actions struct {
	Durable []Op // must be on disk before anything is sent
	Write   []Op // to be written soon, in order
	Send    []Send
	Changed []Change
	Notes   []Note
}

// Send is a message to a member.
type Send struct {
	To   string
	Data []byte
	// Stream requests a reliable transport. It is set for messages longer than MaxPacket, and for
	// repeated requests.
	Stream bool
}

// Change names a record, a node, or a directory with a new version.
type Change struct {
	Key       Key // zero for a node or directory
	Node      NodeID
	Directory bool // Node is the ID of a directory
}

// Note is a message for operators: a stable name and a sentence.
type Note struct{ What, Text string }

// entry is the current version of a slot: a record or a manifest.
type entry struct {
	head     Head
	record   *Record
	manifest *Manifest
}

func (e *Engine) extentIn(en *entry) *limits.Extent {
	if en == nil {
		return nil
	}
	return e.extentOf(en.record)
}

type body struct {
	data []byte
	refs int
}

// Engine is the replication state of one node. It is not safe for concurrent use.
type Engine struct {
	cfg      Config
	now      time.Time // monotonic: see Now.Mono
	wall     time.Time
	entries  map[Slot]*entry
	tree     sumtree.Tree[Head]
	bytes    int // of records, manifests and bodies
	bodies   map[BodyHash]*body
	accounts limits.Accounts
	tombs    int

	conflicts conflicts
	parked    map[Slot]*parked
	limbo     map[Slot]*Record
	holds     containers
	heals     heal.List
	refused   map[Head]*refusal
	damaged   map[Slot]Refusal
	limitNote time.Time // last note about a version above a limit

	parkedBytes int

	withheld      map[Slot][]*withheld // records, and owners of manifests by their first slot
	withheldBytes int
	withheldCount int
	unverified    bool // while the saved state is loaded: signatures may not be valid

	peers    map[string]*peer
	alive    []string // live members, in no particular order
	clock    poolClock
	agreed   time.Time     // wall time at which a peer had the same root
	agreedAt time.Time     // monotonic time of agreed; zero: not since the start
	savedAt  time.Time     // monotonic time at which agreed was saved
	cut      HLC           // tombstones before it are dropped
	ancient  HLC           // peers may have dropped tombstones before it
	changed  time.Time     // last change of the root
	deferred bool          // a comparison was deferred, because an update may be on its way
	starts   bucket.Bucket // limits comparisons

	silent map[string]NodeID // live members without messages

	joinTries int // comparisons to start after joining
	joinAt    time.Time
	firstPeer time.Time
	checkAt   time.Time // of the next check with a random peer

	wants    wants
	sets     map[owner]*set
	extended int // manifests that earlier builds ignore
	pending  map[Slot]*pending
	staged   map[owner]map[int]*pending // the same manifests, by index
	rumors   rumors
	push     bucket.Bucket
	forged   bucket.Bucket // limits verifications of forged entries
	own      own
	// published holds the directories that this start published.
	published map[NodeID]*publication
	names     names
	live      liveness.Table
	nextRun   time.Time // time of the next run of periodic tasks
	counters  map[string]uint64
	out       Actions
	news      []news
}

// New returns an engine with the saved state, and the first actions.
func New(cfg Config, now Now, saved []Op) (*Engine, Actions) {
	cfg.Limits = cfg.Limits.WithDefaults()
	e := &Engine{cfg: cfg, now: now.instant(), wall: now.Wall.Round(0), entries: map[Slot]*entry{},
		bodies: map[BodyHash]*body{},
		parked: map[Slot]*parked{}, limbo: map[Slot]*Record{}, refused: map[Head]*refusal{}, damaged: map[Slot]Refusal{},
		peers: map[string]*peer{}, sets: map[owner]*set{}, pending: map[Slot]*pending{},
		staged: map[owner]map[int]*pending{}, published: map[NodeID]*publication{},
		withheld: map[Slot][]*withheld{}, counters: map[string]uint64{}}
	e.holds = containers{map[string]int{}, map[string]bool{}, map[Slot]*Record{}}
	e.conflicts.bySlot = map[Slot][]*Conflict{}
	e.wants.init()
	e.rumors.heads = map[Slot]*rumor{}
	e.live = liveness.New(cfg.Self, e.now)
	e.starts = bucket.New(syncRate, syncRate, e.now)
	e.push = bucket.New(pushRate, pushRate, e.now)
	e.forged = bucket.New(forgedRate, forgedBurst, e.now)
	e.names = names{book: pins.New(), offset: e.wall.Sub(e.now)}
	e.own.raises = bucket.New(raiseRate, raiseBurst, e.now)
	e.load(saved)
	e.startNames()
	e.startAging()
	e.dropVoid()
	e.settleHolds()
	e.expire()
	e.startEpoch()
	if e.cfg.Member == "" {
		e.cfg.Member = MemberName(cfg.Self, e.own.epoch)
	}
	return e, e.take()
}

// MemberName returns the member name of a node for one start. It differs between starts, so peers
// do not apply remembered addresses or counters of an earlier start.
func MemberName(n NodeID, epoch uint64) string {
	return n.String() + "-" + strconv.FormatUint(epoch, 16)
}

// Member returns the member name of this node.
func (e *Engine) Member() string { return e.cfg.Member }

// Step processes an event.
func (e *Engine) Step(now Now, ev Event) Actions {
	e.now, e.wall = now.instant(), now.Wall.Round(0)
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
		e.live.Vouch(ev.Node, e.now)
	case SilentUp:
		e.silentUp(ev)
	case Identity:
		e.identify(ev)
	case Retire:
		e.retire(ev)
	case Heal:
		e.heal(ev.Statement)
	case Reconsider:
		e.reconsider()
	case Tick:
	}
	e.run()
	e.settleHolds()
	e.spread()
	e.ask()
	e.saveDeaths()
	return e.take()
}

// Next returns the monotonic time at which a Tick is due.
func (e *Engine) Next() time.Duration {
	at := e.nextRun
	if len(e.rumors.queue) > 0 && e.rumors.at.Before(at) {
		at = e.rumors.at
	}
	if e.joinTries > 0 && e.joinAt.Before(at) {
		at = e.joinAt
	}
	if t := e.wants.due(); !t.IsZero() && t.Before(at) {
		at = t
	}
	return at.Sub(Now{}.instant())
}

func (e *Engine) take() Actions {
	out := e.out
	e.out = Actions{}
	return out
}

func (e *Engine) note(what, text string) { e.out.Notes = append(e.out.Notes, Note{what, text}) }

func (e *Engine) count(what string) { e.counters[what]++ }

// send encodes and queues a message.
func (e *Engine) send(to string, m message) {
	m.From = e.cfg.Member
	if !e.agreed.IsZero() {
		m.Agreed = uint64(max(e.agreed.UnixMilli(), 0))
	}
	data := m.encode()
	e.out.Send = append(e.out.Send, Send{to, data, m.Stream || len(data) > MaxPacket})
}

// run executes tasks whose time has come.
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
	if e.nextRun.After(e.now) {
		return
	}
	e.nextRun = e.now.Add(time.Second)
	e.measureClock()
	e.releaseParked()
	e.pruneRefusals()
	e.expirePending()
	e.runChecks()
	e.live.MarkUnseen(e.now)
	e.touchNames()
	e.expire()
	for _, n := range e.live.Gone(e.now) {
		e.forget(n, "dead for "+liveness.GoneAfter.String())
	}
	if e.agreedAt.Sub(e.savedAt) >= 10*time.Minute {
		e.savedAt = e.agreedAt
		e.out.Write = append(e.out.Write, Op{Bucket: bucketMeta, Key: metaAgreed, Value: putTime(e.agreed)})
	}
}
