package losstest

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/agent/test/disktest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// TestPowerLossOfNode runs powerLossOfNode in a separate process.
func TestPowerLossOfNode(t *testing.T) {
	if os.Getenv(childRun) != "" {
		powerLossOfNode(t)
		return
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPowerLossOfNode$", "-test.v")
	cmd.Env = append(os.Environ(), childRun+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
}

// acknowledged is a version that the API of a node has acknowledged.
type acknowledged struct {
	position int // operations of the disk at that time
	version  *engine.Record
}

// powerLossOfNode writes to two nodes at the same time, and loses power on one of them at random
// points. It has all writes that it had acknowledged, and gets the others from its peer.
func powerLossOfNode(t *testing.T) {
	dirs := [2]string{disktest.TempDir(t), disktest.TempDir(t)}
	_, err := peers.OpenIdentity(dirs[0])
	do(t, err)
	disk := disktest.New(t, dirs[0])
	disktest.RecordAll(t, disk)
	a := start(t, dirs[0], "a")
	b := start(t, dirs[1], "b", a)
	apply(t, a, "type: Mesh\nname: default\n")
	var acks []acknowledged
	var writers sync.WaitGroup
	for i, n := range []*node{a, b} {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		writers.Go(func() {
			for round := range 80 {
				name := fmt.Sprintf("t%d", random.IntN(6))
				k := resource.Key{Kind: "MeshTimeout", Mesh: "default", Name: name}
				op := store.Op{Delete: k}
				if random.IntN(3) > 0 {
					r, err := decode([]byte(timeout(name, fmt.Sprintf("%ds", 1000*i+round+1))))
					if err != nil {
						t.Error(err)
						return
					}
					op = store.Op{Put: r}
				}
				_, err := n.store.Apply(store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true,
					Ops: []store.Op{op}})
				var absent *store.NotFoundError
				if err != nil && !errors.As(err, &absent) {
					t.Error(err)
				}
				if v := n.store.Version(k); n == a && err == nil && v.Origin == "a" { // b has not replaced it
					acks = append(acks, acknowledged{disk.Position(), v})
				}
			}
		})
	}
	writers.Wait()
	agree(t, anyContent, a, b)
	want := versions(a.store)
	a.Stop()
	b.Stop()
	random, replay := rand.New(rand.NewPCG(1, 1)), disk.Replay()
	for {
		if random.IntN(1+disk.Position()/12) == 0 {
			image := filepath.Join(disktest.TempDir(t), "a")
			do(t, replay.Crash(random, image))
			compareNode(t, image, replay.Position(), acks)
			other := disktest.TempDir(t)
			for _, name := range []string{"nearside.db", "node-key"} {
				content, err := os.ReadFile(filepath.Join(dirs[1], name))
				do(t, err)
				placeFile(t, other, name, content)
			}
			second := start(t, other, "b")
			first := start(t, image, "a", second)
			agree(t, anyContent, first, second)
			if got := versions(first.store); got != want {
				t.Fatalf("after operation %d: versions %s, want %s", replay.Position(), got, want)
			}
			first.Stop()
			second.Stop()
		}
		if _, ok := replay.Step(); !ok {
			return
		}
	}
}

// compareNode checks that the store in a directory has the versions acknowledged before a position.
func compareNode(t *testing.T, dir string, position int, acks []acknowledged) {
	t.Helper()
	id, err := peers.OpenIdentity(dir)
	do(t, err)
	s, err := store.Open(options(dir, engine.Origin{Node: id.Node, Name: "a"}, slog.New(slog.DiscardHandler)))
	do(t, err)
	for _, ack := range acks {
		have := s.Version(resource.Key(ack.version.Key))
		if ack.position <= position && (have == nil || have.Version().Less(ack.version.Version())) {
			t.Fatalf("after operation %d: %s has version %v, but %s was acknowledged before operation %d", position,
				ack.version.Key, have, ack.version.ID(), ack.position)
		}
	}
	do(t, s.Close())
}
