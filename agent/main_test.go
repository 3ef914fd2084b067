package agent_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/kinds"
	"github.com/nearside-mesh/nearside/agent/resource"
	"github.com/nearside-mesh/nearside/agent/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait for something that must happen.
const patience = 20 * time.Second

// await waits until cond holds; it looks again whenever something is told on ch.
func await[T any](t *testing.T, what string, ch <-chan T, cond func() bool) {
	t.Helper()
	late := time.After(patience)
	for !cond() {
		select {
		case <-ch:
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// shortDir is a temporary directory whose path leaves room for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func memory(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// meshes is a file of meshes; "a+" is mesh a with other content than "a".
func meshes(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		name, changed := strings.CutSuffix(n, "+")
		b.WriteString("---\ntype: Mesh\nname: " + name + "\n")
		if changed {
			b.WriteString("routing: {zoneEgress: true}\n")
		}
	}
	return b.String()
}

func meshKey(name string) resource.Key { return resource.Key{Kind: "Mesh", Name: name} }

// held lists the meshes in a store as "name@file", "a+" where the content is the other one.
func held(s *store.Store) string {
	var out []string
	for _, r := range s.Snapshot().Records() {
		if r.Kind != "Mesh" {
			continue
		}
		n := r.Name
		if m, ok := r.Spec.(*resource.Mesh); ok && m.Routing != nil {
			n += "+"
		}
		from := r.Source.Kind
		if r.Source.Detail != "" {
			from = filepath.Base(r.Source.Detail)
		}
		out = append(out, n+"@"+from)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// flapped reports whether a resource was deleted at some time.
func flapped(s *store.Store, k resource.Key) bool {
	return slices.ContainsFunc(s.History(k), func(r store.Revision) bool { return r.Deleted })
}

func decoded(t testing.TB, text string) []*resource.Resource {
	t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(text))
	if faults != nil {
		t.Fatal(faults)
	}
	return rs
}

// byAPI stores what text says, as the API does.
func byAPI(t *testing.T, s *store.Store, text string) {
	t.Helper()
	b := store.Batch{Source: store.Source{Kind: store.SourceAPI}}
	for _, r := range decoded(t, text) {
		b.Ops = append(b.Ops, store.Op{Put: r})
	}
	if _, err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
}

// logs collects what is logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
	ch chan struct{} // one slot: something was logged
}

func newLogs() *logs { return &logs{ch: make(chan struct{}, 1)} }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.ch <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
