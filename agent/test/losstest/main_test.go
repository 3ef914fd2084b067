package losstest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/source/peers"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// childRun is set in the process of TestPowerLossOfNode that records its operations until its end.
const childRun = "NEARSIDE_LOSSTEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childRun) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

var registry = kinds.Registry()

func do(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// release1 returns a file that a node of the first release wrote. Two nodes, a and b, had a pool.
// Node a wrote Mesh/default, and MeshTimeouts slow and gone, and b wrote fromb; these are in the
// older files. Then b changed slow, and a deleted gone and wrote late; these are in the newer
// files.
func release1(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open("testdata/release1.tgz")
	do(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	do(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		do(t, err)
		if filepath.Clean(h.Name) == name {
			b, err := io.ReadAll(r)
			do(t, err)
			return b
		}
	}
}

// placeFile writes a file of a node.
func placeFile(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	do(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
}

func decode(b []byte) (*resource.Resource, error) {
	rs, faults := registry.Decode("", b)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	if len(rs) != 1 {
		return nil, fmt.Errorf("%d resources", len(rs))
	}
	return rs[0], nil
}

func options(dir string, of engine.Origin, log *slog.Logger) store.Options {
	return store.Options{Path: filepath.Join(dir, "nearside.db"), Encode: resource.Marshal, Decode: decode, Log: log,
		Shared: peers.Shared, Origin: of, Import: func() ([]engine.Op, error) { return peers.Import(dir, log) }}
}

// lines is a log. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text strings.Builder // mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the log so far.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// node is a store in a pool.
type node struct {
	name  string
	store *store.Store
	peers *peers.Source
	log   *lines
	Stop  func()
}

// start starts a node with the files of a directory. It joins the other nodes.
func start(t testing.TB, dir, name string, others ...*node) *node {
	t.Helper()
	var join []string
	for _, o := range others {
		join = append(join, o.peers.Addr().String())
	}
	id, err := peers.OpenIdentity(dir)
	do(t, err)
	n := &node{name: name, log: &lines{}}
	log := slog.New(slog.NewTextHandler(n.log, nil))
	n.store, err = store.Open(options(dir, engine.Origin{Node: id.Node, Name: name, Cluster: "test", Signer: id.Signer},
		log))
	do(t, err)
	do(t, peers.RetireImported(dir, n.store))
	ctx, cancel := context.WithCancel(context.Background())
	n.peers, err = peers.Open(ctx, peers.Options{Store: n.store, Decode: decode, Self: id.Node, Fresh: id.Fresh,
		Signer: id.Signer, Former: id.Former, Node: name, Cluster: "test", Bind: "127.0.0.1:0", Join: join, Insecure: true,
		Log: log, Now: time.Now})
	do(t, err)
	wait, err := n.peers.Start(ctx)
	do(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); n.store.Run(ctx) }()
	stopped := false
	n.Stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-ended
		if err := errors.Join(wait(), n.store.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(n.Stop)
	return n
}

// timeout is the document of a MeshTimeout.
func timeout(name, value string) string {
	return fmt.Sprintf("type: MeshTimeout\nmesh: default\nname: %s\nspec: {targetRef: {kind: Mesh}, "+
		"to: [{targetRef: {kind: Mesh}, default: {idleTimeout: %s}}]}\n", name, value)
}

// versions returns the versions of a store, as "name=ID".
func versions(s *store.Store) string {
	var out []string
	for _, v := range s.Versions() {
		if v.Deleted {
			out = append(out, v.Key.Name+"="+v.ID()+"-deleted")
		} else {
			out = append(out, v.Key.Name+"="+v.ID())
		}
	}
	return strings.Join(out, " ")
}

var timeoutValue = regexp.MustCompile(`Timeout":"([0-9a-z]+)"`)

// live returns the operators' resources in force, with the values of their timeouts.
func live(s *store.Store) string {
	var out []string
	for _, rec := range s.Snapshot().Records() {
		if !rec.Source.Operators() {
			continue
		}
		b, err := resource.Marshal(rec.Resource)
		if err != nil {
			return err.Error()
		}
		out = append(out, rec.Name)
		if m := timeoutValue.FindSubmatch(b); m != nil {
			out[len(out)-1] += "=" + string(m[1])
		}
	}
	return strings.Join(out, " ")
}
