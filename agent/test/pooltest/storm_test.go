package pooltest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

var (
	kills     = flag.Int("kills", 10, "number of kills in TestStormOfKilledNodes")
	stormSeed = flag.Uint64("storm-seed", 0, "seed of TestStormOfKilledNodes; 0: a random one")
)

// killsPerRound is the number of kills until the writers pause and all nodes are compared.
const killsPerRound = 5

// sharedNames is the number of policies that all nodes change and delete in a round.
const sharedNames = 12

// storm kills agents while others write.
type storm struct {
	t      *testing.T
	all    []*member
	rng    *rand.Rand // of the killer
	ledger *ledger

	copied int // the node with a copy of its state
	rounds int

	fragile, restored, lost int
}

// TestStormOfKilledNodes checks that a pool of five agents loses nothing. Writers change and delete
// policies on all nodes, while agents are killed at random moments and restarted, sometimes with an
// earlier copy of their state, or without any state except their identity. Afterwards all nodes
// must have the same resources, no deleted resource may be live, and each acknowledged change must
// be in force, superseded by a later one, or listed as a conflict. Changes whose only copy may have
// been on a lost disk are exempt.
func TestStormOfKilledNodes(t *testing.T) {
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-storm-seed %d", seed)
	s := &storm{t: t, all: startPool(t, 5), rng: rand.New(rand.NewPCG(seed, 0)),
		ledger: &ledger{changes: map[string][]*change{}, gone: map[string]bool{}}}
	s.all[0].apply(meshText)
	agree(s.all)
	began := time.Now()
	for done := 0; done < *kills; done += killsPerRound {
		s.saveCopy()
		s.round(min(killsPerRound, *kills-done))
		if t.Failed() {
			t.Fatalf("failed after %d kills", done+killsPerRound)
		}
	}
	if s.ledger.acknowledged < *kills*2 {
		t.Errorf("only %d changes were acknowledged", s.ledger.acknowledged)
	}
	t.Logf("%d kills in %s; %d acknowledged changes, %d of them perhaps only on replaced disks; "+
		"%d disks restored, %d lost", *kills, time.Since(began).Round(time.Second), s.ledger.acknowledged, s.fragile,
		s.restored, s.lost)
}

// saveCopy copies the state of a node, which is killed for that. At that moment all nodes agree.
func (s *storm) saveCopy() {
	s.t.Helper()
	s.copied = s.rng.IntN(len(s.all))
	m := s.all[s.copied]
	m.kill()
	copyState(s.t, m.state(), s.copyOf(m))
	m.start()
}

func (s *storm) copyOf(m *member) string { return filepath.Join(m.dir, "earlier") }

// round kills agents while others write, and then compares all nodes.
func (s *storm) round(kills int) {
	s.t.Helper()
	s.rounds++
	ctx, pause := context.WithCancel(s.t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer pause()
	for i, m := range s.all {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 0))
		writers.Go(func() { s.write(ctx, m, i, rng) })
	}
	disk := s.rng.IntN(kills) // the kill after which a disk is replaced
	for k := range kills {
		i := s.rng.IntN(len(s.all))
		<-time.After(time.Duration(50+s.rng.IntN(300)) * time.Millisecond)
		if k == disk {
			s.replaceDisk(i)
			continue
		}
		m := s.all[i]
		m.kill()
		m.begin()
		if s.rng.IntN(2) == 0 { // otherwise the next kill may interrupt the start
			m.ready()
		}
	}
	pause()
	writers.Wait()
	for _, m := range s.all {
		m.ready()
	}
	began := time.Now()
	has := agree(s.all)
	if testing.Verbose() {
		s.t.Logf("round %d: %d resources, %d acknowledged changes, agreement after %s", s.rounds, len(has),
			s.ledger.acknowledged, time.Since(began).Round(10*time.Millisecond))
	}
	for _, fault := range s.ledger.verify(has, s.conflicts()) {
		s.t.Error(fault)
	}
}

// replaceDisk kills a node, and starts it with the copy of its state or, in each second round,
// without its state.
func (s *storm) replaceDisk(i int) {
	s.t.Helper()
	restore := s.rounds%2 == 1
	if restore {
		i = s.copied
	}
	m := s.all[i]
	for _, x := range s.all {
		x.ready()
	}
	m.kill()
	var others []map[string]entry
	for o, x := range s.all {
		if o != i {
			has, err := x.entries(s.t.Context())
			agenttest.Do(s.t, err)
			others = append(others, has)
		}
	}
	s.fragile += s.ledger.lose(i, others)
	if restore {
		s.restored++
		copyState(s.t, s.copyOf(m), m.state())
	} else {
		s.lost++
		loseState(s.t, m.state())
	}
	m.start()
}

// write changes policies on a node until ctx ends.
func (s *storm) write(ctx context.Context, m *member, node int, rng *rand.Rand) {
	pace := time.NewTicker(15 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		name, deletion := fmt.Sprintf("shared-%d-%d", s.rounds, rng.IntN(sharedNames)), false
		switch k := rng.IntN(10); {
		case k < 2:
			deletion = true
		case k < 4:
			name = ""
		case k < 7:
			name, deletion = s.ledger.existing(rng.IntN), true
			if name == "" {
				continue
			}
		}
		c := s.ledger.begin(node, name, deletion)
		var err error
		if deletion {
			_, err = m.api.Delete(context.WithoutCancel(ctx), "meshtimeouts", "default", c.name, false)
		} else {
			text := timeoutText(c.name, c.write, fmt.Sprintf("%ds", 1+rng.IntN(1000)))
			_, err = m.api.Apply(context.WithoutCancel(ctx), []byte(text), false)
		}
		var refused *api.Error
		var absent *client.UnreachableError
		s.ledger.end(c, err == nil, errors.As(err, &refused) || errors.As(err, &absent))
		if refused != nil && refused.Status != http.StatusNotFound && refused.Status != http.StatusServiceUnavailable {
			s.t.Errorf("a change of %s on %s is refused: %v", c.name, m.name, refused)
		}
	}
}

// conflicts returns the conflicts that any node lists.
func (s *storm) conflicts() (out []api.ConflictItem) {
	s.t.Helper()
	for _, m := range s.all {
		list, err := m.api.Conflicts(s.t.Context(), false)
		agenttest.Do(s.t, err)
		out = append(out, list.Items...)
	}
	return out
}
