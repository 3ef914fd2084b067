// Package agenttest provides helpers for tests of whole agents: agents with separate directories,
// logs that tests can wait for, and resources.
package agenttest

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/metadata"
)

// Patience is the timeout for events that must happen, long enough for a busy machine.
const Patience = 2 * time.Minute

// LongestWait is the maximum time that one request may wait for the effects of a change.
const LongestWait = "25s"

// Await waits until cond is true. It checks cond after each value received on ch.
func Await[T any](t testing.TB, what string, ch <-chan T, cond func() bool) {
	t.Helper()
	late := time.After(Patience)
	for !cond() {
		select {
		case <-ch:
		case <-late:
			t.Fatalf("not within %s: %s", Patience, what)
		}
	}
}

// Eventually polls a condition until it is true. In a synctest bubble it uses fake time.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	Await(t, what, tick.C, holds)
}

// Loopback returns a random address of the loopback network, which no other test has. Clients have
// 127.0.0.1, so no connection takes a port of the address before a test listens there, as it can
// take a free port of 127.0.0.1. The port must be below the ephemeral ones.
func Loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254))
}

// ShortDir returns a temporary directory with a path short enough for sockets.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Home returns a short directory with an empty resource directory.
func Home(t testing.TB) string {
	t.Helper()
	dir := ShortDir(t)
	if err := os.Mkdir(filepath.Join(dir, "resources"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func Memory(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Meshes returns a file with meshes. "a+" is mesh a with different content.
func Meshes(names ...string) string {
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

func MeshKey(name string) resource.Key { return resource.Key{Kind: "Mesh", Name: name} }

// Held lists the meshes in a store as "name@file", or "a+" for different content.
func Held(s *store.Store) string {
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

// Flapped reports whether a resource has ever been deleted.
func Flapped(s *store.Store, k resource.Key) bool {
	return slices.ContainsFunc(s.History(k), func(r store.Revision) bool { return r.Deleted })
}

func Decoded(t testing.TB, text string) []*resource.Resource {
	t.Helper()
	rs, faults := kinds.Registry().Decode("test", []byte(text))
	if faults != nil {
		t.Fatal(faults)
	}
	return rs
}

// ByAPI stores the resources in text like an API write.
func ByAPI(t testing.TB, s *store.Store, text string) {
	t.Helper()
	b := store.Batch{Source: store.Source{Kind: store.SourceAPI}, Durable: true}
	for _, r := range Decoded(t, text) {
		b.Ops = append(b.Ops, store.Op{Put: r})
	}
	if _, err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
}

// Logs collects log lines.
type Logs struct {
	mu sync.Mutex
	b  bytes.Buffer
	Ch chan struct{} // capacity 1: signals a new line
}

func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.Ch <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *Logs) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func NewLogs() *Logs { return &Logs{Ch: make(chan struct{}, 1)} }

func Do(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// WriteSecret is like Write for a file that only its owner may read.
func WriteSecret(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// DataplaneText returns a Dataplane for the metadata of an Envoy.
func DataplaneText(mesh, name, address string) string {
	return fmt.Sprintf(`{"type": "Dataplane", "mesh": %q, "name": %q, "networking": {"address": %q, "inbound": [{"port": 80, "tags": {"kuma.io/service": %q}}]}}`,
		mesh, name, address, name)
}

// PortedText returns DataplaneText with a port of the workload, so that the inbound does not
// forward to itself, which is a problem.
func PortedText(mesh, name, address string) string {
	return strings.Replace(DataplaneText(mesh, name, address), `80,`, `80, "servicePort": 8080,`, 1)
}

func Metadata(t testing.TB, v any) *structpb.Struct {
	t.Helper()
	m, err := structpb.NewStruct(map[string]any{metadata.MetadataDataplane: v,
		"annotations": map[string]any{"kuma.io/x": "y"}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var WebKey = resource.Key{Kind: "Dataplane", Mesh: "default", Name: "web"}

// Has returns the source and the address of Dataplane web, or "" if it does not exist.
func Has(s *store.Store) string {
	r, ok := s.Snapshot().Get(WebKey)
	if !ok {
		return ""
	}
	return r.Source.String() + " " + r.Spec.(*resource.Dataplane).Networking.Address
}

// LoadConfig loads a config from a file with the given text. An empty text means no file.
func LoadConfig(t *testing.T, file string, env, set []string) (*config.Config, config.Origins, []string) {
	t.Helper()
	o := config.LoadOptions{Env: env, Set: set, Dir: t.TempDir(), Hostname: "Host_1.example", UID: func() int { return 0 }}
	if file != "" {
		o.File = filepath.Join(o.Dir, "agent.yaml")
		Write(t, o.File, file)
	}
	cfg, origins, faults := config.Load(o)
	var lines []string
	for _, f := range faults {
		lines = append(lines, strings.ReplaceAll(f.String(), o.Dir, "DIR"))
	}
	return cfg, origins, lines
}
