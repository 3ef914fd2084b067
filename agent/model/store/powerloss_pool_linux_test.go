package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/draft"
)

// exchange connects the store of a workload to a pool of two nodes: its own and a remote one, which
// keeps its state. Messages arrive at once. It implements [store.Pool].
type exchange struct {
	t             *testing.T
	clock         time.Time
	store         *store.Store
	local, remote *engine.Engine
	changed       []engine.Change // of local
	sent          int             // messages of local
}

var (
	here      = engine.Origin{Node: engine.NodeID{1, 2, 3}, Name: "here"}
	otherNode = engine.Origin{Node: engine.NodeID{9, 9}, Name: "there"}
)

func newExchange(t *testing.T) *exchange {
	x := &exchange{t: t, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	x.remote = x.engine(otherNode, nil)
	return x
}

func (x *exchange) engine(of engine.Origin, saved []engine.Op) *engine.Engine {
	e, _ := engine.New(engine.Config{Self: of.Node, Name: of.Name, Random: func(int) int { return 0 }}, x.now(), saved)
	return e
}

func (x *exchange) now() engine.Now {
	return engine.Now{Wall: x.clock, Mono: time.Duration(x.clock.UnixNano())}
}

// attach starts the local engine with the content of a store.
func (x *exchange) attach(s *store.Store) {
	x.clock = x.clock.Add(2 * time.Second) // each start needs another second
	var saved []engine.Op
	for _, v := range s.Versions() {
		saved = append(saved, engine.Op{Bucket: engine.BucketRecords, Record: v})
	}
	if x.local != nil {
		x.do(x.remote, engine.PeerDown{Member: x.local.Member()})
	}
	x.store, x.local = s, x.engine(here, saved)
	s.Connect(x)
	x.do(x.remote, engine.PeerUp{Member: x.local.Member(), Node: here.Node})
	x.do(x.local, engine.PeerUp{Member: x.remote.Member(), Node: otherNode.Node})
}

// do processes an event, and all messages that follow from it.
func (x *exchange) do(e *engine.Engine, ev engine.Event) {
	actions := e.Step(x.now(), ev)
	to := x.local
	if e == x.local {
		to = x.remote
		x.changed = append(x.changed, actions.Changed...)
		x.sent += len(actions.Send)
	}
	for _, m := range actions.Send {
		if to != nil && m.To == to.Member() {
			x.do(to, engine.Received{Data: m.Data})
		}
	}
}

// Seal implements [store.Pool].
func (x *exchange) Drafts([]engine.Key) ([]draft.Draft, error) { return nil, nil }

func (x *exchange) Seal(puts []engine.Put) ([]*engine.Record, func(), error) {
	records, _, err := x.local.Prepare(x.now(), puts)
	return records, func() { x.do(x.local, engine.Committed{Records: records}) }, err
}

// write changes a record on the remote node.
func (x *exchange) write(p engine.Put) error {
	records, _, err := x.remote.Prepare(x.now(), []engine.Put{p})
	if err != nil {
		return err
	}
	x.do(x.remote, engine.Committed{Records: records})
	return x.merge()
}

// merge applies what the local engine has received to the store.
func (x *exchange) merge() error {
	var ops []store.Op
	for _, c := range x.changed {
		if c.Node == (engine.NodeID{}) {
			ops = append(ops, x.store.Merge(x.local.Record(c.Key)))
		}
	}
	x.changed = nil
	_, err := x.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceGossip}, Ops: ops})
	return err
}

// sync compares the nodes until they agree.
func (x *exchange) sync() {
	x.t.Helper()
	for i := 0; x.local.Root() != x.remote.Root(); i++ {
		if i == 100 {
			x.t.Fatal("the nodes do not agree")
		}
		x.clock = x.clock.Add(time.Second)
		x.do(x.local, engine.Tick{})
		x.do(x.remote, engine.Tick{})
		x.do(x.local, engine.Acked{Member: x.remote.Member(), Payload: engine.AckPayload(x.remote.Root(), x.clock)})
	}
	if err := x.merge(); err != nil {
		x.t.Fatal(err)
	}
}

// difference returns a difference between the store and the local engine, or "".
func (x *exchange) difference() string {
	if x.store == nil {
		return ""
	}
	for _, name := range allNames {
		v, r := x.store.Version(key(name)), x.local.Record(engine.Key(key(name)))
		if (v == nil) != (r == nil) || v != nil && v.ID() != r.ID() {
			return fmt.Sprintf("%s: the store has version %v, the engine %v", name, v, r)
		}
	}
	return ""
}
