package peers

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// pooledSource is a source with its store, and a clock that the test moves.
type pooledSource struct {
	*Source
	store *store.Store
	ahead atomic.Int64 // nanoseconds
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func startSource(t *testing.T, id byte, join ...string) *pooledSource {
	t.Helper()
	p := &pooledSource{}
	self := engine.NodeID{id}
	decode := func(b []byte) (*resource.Resource, error) {
		rs, faults := kinds.Registry().Decode("", b)
		if err := faults.Err(); err != nil || len(rs) != 1 {
			return nil, fmt.Errorf("%d resources: %w", len(rs), err)
		}
		return rs[0], nil
	}
	var err error
	p.store, err = store.Open(store.Options{Encode: resource.Marshal, Decode: decode, Shared: Shared,
		Origin: engine.Origin{Node: self, Name: string(rune(id))}})
	must(t, err)
	p.Source, err = Open(t.Context(), Options{Store: p.store, Decode: decode, Self: self, Fresh: true,
		Node:    string(rune(id)),
		Cluster: "test", Bind: "127.0.0.1:0", Join: join, Insecure: true, Changed: func() {},
		Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := p.Start(ctx)
	must(t, err)
	t.Cleanup(func() { cancel(); must(t, wait()) })
	return p
}

func (p *pooledSource) apply(t *testing.T, text string) {
	t.Helper()
	rs, faults := kinds.Registry().Decode("", []byte(text))
	must(t, faults.Err())
	_, err := p.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Ops: []store.Op{{Put: rs[0]}}})
	must(t, err)
}

// TestStoresThatDiffer checks that a node finds a resource that only its peer's store has lost,
// although the engines of both nodes agree, reports it after 30 s, and no longer after a repair.
func TestStoresThatDiffer(t *testing.T) {
	a := startSource(t, 'a')
	b := startSource(t, 'b', a.Addr().String())
	key := resource.Key{Kind: "Mesh", Name: "one"}
	for _, name := range []string{"one", "two"} {
		a.apply(t, "type: Mesh\nname: "+name+"\n")
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	equal := func() bool {
		return len(b.store.Versions()) == 2 && len(a.others()) == 1 && a.digests().Store == b.digests().Store
	}
	for end := time.Now().Add(20 * time.Second); !equal(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("the stores do not become equal")
		}
	}
	a.compareSome(t.Context())
	state := func() (api.Check, api.Member) {
		for _, m := range a.Compared(t.Context()) {
			if m.Name == "b" {
				return a.stateCheck(), m
			}
		}
		t.Fatal("no member")
		return api.Check{}, api.Member{}
	}
	if c, m := state(); c.Degraded || !m.InSync {
		t.Errorf("equal stores: %+v %+v", c, m)
	}

	lost := b.store.Version(key)
	_, err := b.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceGossip},
		Ops: []store.Op{{Delete: key, Drop: true}}})
	must(t, err)
	a.compareSome(t.Context())
	if c, _ := state(); c.Degraded {
		t.Errorf("at once: %+v", c)
	}
	a.ahead.Store(int64(31 * time.Second))
	a.compareSome(t.Context())
	if c, m := state(); !c.OK || !c.Error || m.InSync || m.Lag < 30 ||
		!strings.Contains(c.Reason, "differ from those of node b, for 31s: Mesh/one (missing there)") {
		t.Errorf("after 31 s: %+v %+v", c, m)
	}

	_, err = b.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceGossip},
		Ops: []store.Op{b.store.Merge(lost)}})
	must(t, err)
	a.compareSome(t.Context())
	if c, m := state(); c.Degraded || !m.InSync || m.Lag != 0 {
		t.Errorf("after the repair: %+v %+v", c, m)
	}
}

// TestEntryDiffs checks that a difference is found in its bucket only, and that keys after the end
// of an incomplete answer are not compared.
func TestEntryDiffs(t *testing.T) {
	own, theirs := map[string]string{}, map[string]string{}
	for i := range 5000 {
		key := fmt.Sprintf("MeshTimeout default/%04d", i)
		own[key], theirs[key] = "1", "1"
	}
	theirs["MeshTimeout default/0007"] = "2"
	delete(theirs, "MeshTimeout default/0042")
	theirs["MeshTimeout default/more"] = "1"
	ours, all := bucketsOf(own)
	others, otherAll := bucketsOf(theirs)
	var differ []int
	for i := range ours {
		if ours[i] != others[i] {
			differ = append(differ, i)
		}
	}
	if len(differ) != 3 || all == otherAll {
		t.Fatalf("buckets %v", differ)
	}
	got := entryDiffs(own, &entriesAnswer{Entries: theirs}, differ)
	if len(got) != 3 || got["MeshTimeout default/0007"] != (difference{here: "1", there: "2"}) ||
		got["MeshTimeout default/0042"] != (difference{here: "1"}) ||
		got["MeshTimeout default/more"] != (difference{there: "1"}) {
		t.Errorf("%v", got)
	}
	got = entryDiffs(own, &entriesAnswer{Entries: theirs, Last: "MeshTimeout default/0008"}, differ)
	if len(got) != 1 {
		t.Errorf("of an incomplete answer: %v", got)
	}
}
