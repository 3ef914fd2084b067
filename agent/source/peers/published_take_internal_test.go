package peers

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// pooledSource is a source with its store.
type pooledSource struct {
	*Source
	store *store.Store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startSource starts a node of the cluster "test".
func startSource(t *testing.T, id byte, join ...string) *pooledSource {
	t.Helper()
	return startWith(t, id, func(o *Options) { o.Join = join })
}

// startWith starts a node with other options.
func startWith(t *testing.T, id byte, change func(*Options)) *pooledSource {
	t.Helper()
	p := &pooledSource{}
	self, name := engine.NodeID{id}, string(rune(id))
	decode := func(b []byte) (*resource.Resource, error) {
		rs, faults := kinds.Registry().WithInternal().Decode("", b)
		if err := faults.Err(); err != nil || len(rs) != 1 {
			return nil, fmt.Errorf("%d resources: %w", len(rs), err)
		}
		return rs[0], nil
	}
	var err error
	p.store, err = store.Open(store.Options{Encode: resource.Marshal, Decode: decode, Shared: Shared,
		Origin: engine.Origin{Node: self, Name: name}})
	must(t, err)
	o := Options{Store: p.store, Decode: decode, Self: self, Fresh: true, Node: name,
		Cluster: "test", Bind: "127.0.0.1:0", Insecure: true, Changed: func() {},
		Log: slog.New(slog.DiscardHandler), Now: time.Now}
	change(&o)
	p.Source, err = Open(t.Context(), o)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := p.Start(ctx)
	must(t, err)
	t.Cleanup(func() { cancel(); must(t, wait()) })
	return p
}

// publishAs publishes documents under an owner, as a node with any program could.
func (p *pooledSource) publishAs(t *testing.T, owner engine.NodeID, name string, items ...engine.OwnItem) {
	t.Helper()
	must(t, p.node.SetDirectory(engine.Own{Owner: owner, Name: name, Items: items}))
}

func meshItem(name, body string) engine.OwnItem {
	return engine.OwnItem{Key: engine.Key{Kind: "Mesh", Name: name}, Body: []byte(body)}
}

// holds waits until a store has exactly these meshes, each with its source.
func (p *pooledSource) holds(t *testing.T, want string) {
	t.Helper()
	changed, stop := p.store.Watch()
	defer stop()
	late := time.After(20 * time.Second)
	for {
		var got []string
		for _, rec := range p.store.Snapshot().Records() {
			got = append(got, rec.Key.String()+"@"+rec.Source.String())
		}
		if strings.Join(got, " ") == want {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the store holds %q, want %q", got, want)
		}
	}
}

// TestPublishedItems checks that a node uses only valid items of a directory, that the directory
// with the lowest ID wins if several have a resource, and that operators' resources take precedence
// on every node, in whichever order they arrive.
func TestPublishedItems(t *testing.T) {
	a := startSource(t, 'a')
	b := startSource(t, 'b', a.Addr().String())
	both := []*pooledSource{a, b}
	one, two := directoryID("test", "one"), directoryID("test", "two")
	good := meshItem("m", "{type: Mesh, name: m}")
	a.publishAs(t, one, "one", good, meshItem("other", "{type: Mesh, name: m}"), meshItem("broken", "{"),
		engine.OwnItem{Key: engine.Key{Kind: "Dataplane", Mesh: "m", Name: "d"}, Body: []byte("{type: Dataplane, mesh: m, " +
			"name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: s}}]}}")},
		engine.OwnItem{Key: engine.Key{Kind: kindDirectory, Name: "one"}, Body: []byte("{")})
	for _, p := range both {
		p.holds(t, "Mesh/m@published:one")
	}
	a.publishAs(t, engine.NodeID{7}, "false", meshItem("x", "{type: Mesh, name: x}"))
	b.publishAs(t, two, "two", good, meshItem("z", "{type: Mesh, name: z}"))
	for _, p := range both {
		p.holds(t, "Mesh/m@published:one Mesh/z@published:two")
		if c, ok := p.PublishCheck(); !ok || !c.Degraded ||
			!strings.Contains(c.Reason, "the directories one and two both contain it; that of one is used") {
			t.Errorf("check: %+v", c)
		}
	}
	b.publishAs(t, one, "one") // another node publishes it, without resources
	for _, p := range both {
		p.holds(t, "Mesh/m@published:two Mesh/z@published:two")
	}

	// As if an operator wrote it before this node learned of the directory.
	key := resource.Key{Kind: "Mesh", Name: "z"}
	version, err := engine.Successor(time.Now(), nil, engine.Put{Key: engine.Key(key),
		Body: []byte("{type: Mesh, name: z}")}, engine.Origin{Node: engine.NodeID{'c'}, Name: "c", Cluster: "test"})
	must(t, err)
	_, err = b.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceGossip},
		Ops: []store.Op{b.store.Merge(version)}})
	must(t, err)
	b.holds(t, "Mesh/m@published:two Mesh/z@gossip:c")
}

// TestEndpointStates checks that the state of a Dataplane is in force on all nodes only if the node
// that owns the Dataplane publishes it, in whichever order they arrive.
func TestEndpointStates(t *testing.T) {
	a := startSource(t, 'a')
	b := startSource(t, 'b', a.Addr().String())
	decode := func(doc string) *resource.Resource {
		rs, faults := kinds.Registry().WithInternal().Decode("", []byte(doc))
		must(t, faults.Err())
		return rs[0]
	}
	dataplane := decode("{type: Dataplane, name: d, networking: {address: 10.0.0.1, inbound: " +
		"[{port: 80, tags: {kuma.io/service: s}}]}}")
	state := decode("{type: EndpointState, name: d, spec: {state: ended}}")
	put := func(p *pooledSource, kind string, r *resource.Resource) {
		t.Helper()
		_, err := p.store.Apply(store.Batch{Source: store.Source{Kind: kind}, Ops: []store.Op{{Put: r}}})
		must(t, err)
	}
	drop := func(p *pooledSource, kind string, k resource.Key) {
		t.Helper()
		_, err := p.store.Apply(store.Batch{Source: store.Source{Kind: kind}, Ops: []store.Op{{Delete: k}}})
		must(t, err)
	}
	put(a, store.SourceNode, state) // without the Dataplane, it counts nowhere else
	put(b, store.SourceNode, decode("{type: EndpointState, name: e, spec: {state: ended}}"))
	put(b, store.SourceFile, decode("{type: Dataplane, name: e, networking: {address: 10.0.0.2, inbound: "+
		"[{port: 80, tags: {kuma.io/service: s}}]}}"))
	a.holds(t, "Dataplane/default/e@peer:b EndpointState/default/d@node EndpointState/default/e@peer:b")
	b.holds(t, "Dataplane/default/e@file EndpointState/default/e@node")
	put(a, store.SourceFile, dataplane)
	b.holds(t, "Dataplane/default/d@peer:a Dataplane/default/e@file "+
		"EndpointState/default/d@peer:a EndpointState/default/e@node")
	drop(b, store.SourceNode, resource.EndpointStateOf(resource.Key{Mesh: "default", Name: "e"}))
	a.holds(t, "Dataplane/default/d@file Dataplane/default/e@peer:b EndpointState/default/d@node")

	put(b, store.SourceFile, dataplane) // the Dataplane moves to another node
	b.holds(t, "Dataplane/default/d@file Dataplane/default/e@file EndpointState/default/d@peer:a")
	drop(a, store.SourceFile, dataplane.Key)
	b.holds(t, "Dataplane/default/d@file Dataplane/default/e@file EndpointState/default/d@peer:a")
	a.holds(t, "Dataplane/default/d@peer:b Dataplane/default/e@peer:b EndpointState/default/d@node")
}

// TestFirstNode: the first node of a pool, which is the only one to join, starts at once.
func TestFirstNode(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	at := free.Addr().String()
	must(t, free.Close())
	said := make(chan string, 100)
	note := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.MessageKey {
			said <- a.Value.String()
		}
		return a
	}
	startWith(t, 'a', func(o *Options) {
		o.Bind, o.Join = at, []string{at}
		o.Log = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{ReplaceAttr: note}))
	})
	for m := range said {
		if strings.Contains(m, "first node of the pool") {
			return
		}
		if len(said) == 0 {
			t.Fatalf("the last message is %q", m)
		}
	}
}
