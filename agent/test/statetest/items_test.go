package statetest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	bolt "go.etcd.io/bbolt"

	"github.com/nearside-mesh/nearside/agent/host/statedir"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/gossip/engine"
)

// pathOf returns the file of an item.
func (w *world) pathOf(dir string, item *statedir.Item) string {
	name := strings.NewReplacer("KEY", w.key, "MESH", "default", "BACKEND", "ca", "DATAPLANE", "web").Replace(item.Name)
	return filepath.Join(dir, "state", name)
}

// spoil makes a fault of a file.
func spoil(t *testing.T, item, fault, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if !errors.Is(err, syscall.EISDIR) {
		agenttest.Do(t, err)
	}
	switch fault {
	case statedir.Missing:
		agenttest.Do(t, os.Remove(path))
	case statedir.Unreadable:
		agenttest.Do(t, os.Chmod(path, rootOnly))
	case statedir.Directory:
		agenttest.Do(t, os.Remove(path), os.Mkdir(path, 0o700))
	case statedir.Link:
		agenttest.Do(t, os.Remove(path), os.Symlink(filepath.Join(filepath.Dir(path), "gone", "file"), path))
	case statedir.Truncated:
		size := len(content) * 2 / 3
		if item == statedir.Database {
			size = 3 * 4096 // the pages at its end may be free
		}
		if item == statedir.OldPool {
			size = 4096
		}
		agenttest.Do(t, os.Truncate(path, int64(size)))
	case statedir.Flipped:
		agenttest.Do(t, os.WriteFile(path, flip(t, item, content), 0o600))
	case statedir.Later:
		later(t, item, path, content)
	}
}

// flip changes a bit of a file's content.
func flip(t *testing.T, item string, content []byte) []byte {
	t.Helper()
	at := len(content) / 2
	if bytes.HasPrefix(content, []byte("-----BEGIN PRIVATE KEY")) {
		at = 10 // a bit of the key itself may make another valid key
	}
	if item == statedir.Database { // in the last change of the policy, not in a free page
		if at = bytes.LastIndex(content, []byte("connectionTimeout")); at < 0 {
			t.Fatal("the state file has no policy")
		}
	}
	content[at] ^= 0x40
	return content
}

// sealed returns a value of the bucket meta: a checksum and the content.
func sealed(key, content string) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum([]byte(key), table), table, []byte(content))
	return append(binary.BigEndian.AppendUint32(nil, sum), content...)
}

// later gives a file the form of a later release.
func later(t *testing.T, item, path string, content []byte) {
	t.Helper()
	switch item {
	case statedir.Database:
		db, err := bolt.Open(path, 0o600, nil)
		agenttest.Do(t, err, db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("format"), sealed("format", "3"))
		}), db.Close())
	case statedir.Inventory:
		agenttest.Do(t, os.WriteFile(path, []byte(`{"version":2,"entries":{}}`), 0o600))
	case "dns-views.json":
		agenttest.Do(t, os.WriteFile(path, bytes.Replace(content, []byte("views 1"), []byte("views 2"), 1), 0o600))
	case "audit-chain.json":
		agenttest.Do(t, os.WriteFile(path, []byte(`{"chain":{"version":2}}`), 0o600))
	default:
		t.Fatalf("%s has no version", item)
	}
}

// TestItems makes each fault of each file, and checks the documented outcome with an agent and an
// Envoy that reconnects.
func TestItems(t *testing.T) {
	w := newWorld(t)
	for _, item := range statedir.Items() {
		if item.Name == statedir.OldPool {
			continue // TestUpgradeFaults
		}
		var set []string
		if item.Name == statedir.TrustPin {
			set = pool // it has no effect without one
		}
		for i, fault := range statedir.Faults() {
			outcome := item.Outcome[i]
			if outcome == statedir.None {
				continue
			}
			t.Run(item.Name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				dir := w.copyOf(t)
				path := w.pathOf(dir, &item)
				w.earlier(t, item.Name, path)
				spoil(t, item.Name, fault, path)
				before := tree(t, dir)
				var r *running
				if fault != statedir.Unreadable {
					r = start(t, dir, set...)
				} else if os.Geteuid() != 0 {
					t.Skip("root is needed to run an agent as another user")
				} else {
					r = startAs(t, dir, set...)
				}
				if err := w.check(t, r, path, outcome); err != nil {
					_, problems := r.status(t)
					t.Errorf("it does not hold that it %s: %v\nproblems:\n%s", outcome, err, problems)
				}
				if r.stop(); outcome == statedir.Suspends && tree(t, dir) != before {
					t.Errorf("a suspended agent has changed the state from\n%s\nto\n%s", before, tree(t, dir))
				}
			})
		}
	}
}

// earlier writes a file that only earlier releases or operators make.
func (w *world) earlier(t *testing.T, item, path string) {
	t.Helper()
	switch item {
	case statedir.NodeKey + ".former":
		key, err := os.ReadFile(filepath.Join(w.dir, "state", "tokens", w.key+".pem"))
		agenttest.Do(t, err, os.WriteFile(path, key, 0o600))
	case "node-id":
		agenttest.Do(t, os.WriteFile(path, []byte(engine.NodeID{1}.String()+"\n"), 0o600))
	case statedir.Database + ".format1":
		agenttest.Do(t, os.WriteFile(path, []byte("a copy"), 0o600))
	}
}

// tree returns the names, types, and sums of what is in the state, except for what the audit log
// and access logs keep there.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	state := filepath.Join(dir, "state")
	agenttest.Do(t, filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		switch filepath.Base(path) {
		case "nearside.lock", "audit-chain.json", "spool", "state":
			return err
		}
		if err != nil {
			return err
		}
		b, _ := os.ReadFile(path) // "" for directories
		fmt.Fprintf(&out, "%s %v %x\n", strings.TrimPrefix(path, state), d.Type(), sha256.Sum256(b))
		return nil
	}))
	return out.String()
}

// check compares an agent with an outcome.
func (w *world) check(t *testing.T, r *running, path, outcome string) error {
	t.Helper()
	s, problems := r.status(t)
	stream := r.ask(t, w.versions)
	if outcome == statedir.Suspends {
		if s.Ready || !strings.Contains(problems, "error state : the agent serves nothing new") ||
			!strings.Contains(problems, path+" ") {
			return fmt.Errorf("ready %v", s.Ready)
		}
		return w.silent(t, r, stream)
	}
	var wrong error
	if !s.Ready {
		wrong = errors.New("the agent is not ready")
	}
	named := strings.Contains(problems, filepath.Base(path)) || strings.Contains(problems, "MeshTimeout/default/slow")
	if named != (outcome == statedir.Warns) && outcome != statedir.Renews {
		wrong = errors.Join(wrong, fmt.Errorf("a problem names the file: %v", named))
	}
	if got := r.config(t); got != w.config {
		wrong = errors.Join(wrong, fmt.Errorf("the config has changed to %s\nfrom %s", got, w.config))
	}
	if outcome == statedir.Renews {
		tick := time.NewTicker(time.Millisecond) // there is no event for a file that is written
		defer tick.Stop()
		agenttest.Await(t, path+" is written again", tick.C, func() bool {
			st, err := os.Stat(path)
			return err == nil && st.Mode().IsRegular() && st.Mode().Perm() == 0o600
		})
	}
	return wrong
}

// silent checks that a suspended agent refuses requests about resources, and that the Envoy gets
// nothing.
func (w *world) silent(t *testing.T, r *running,
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) error {
	t.Helper()
	received := make(chan string, 1)
	go func() { m, err := stream.Recv(); received <- fmt.Sprint(m, err) }()
	if _, err := r.api.Apply(t.Context(), []byte(documents), false); err == nil ||
		!strings.Contains(err.Error(), "serves nothing new") {
		return fmt.Errorf("an API write: %w", err)
	}
	if r.Agent != nil {
		tick := time.NewTicker(time.Millisecond) // there is no event for a request of an Envoy
		defer tick.Stop()
		agenttest.Await(t, "the Envoy is connected", tick.C, func() bool { return len(r.Proxies()) > 0 })
		if r.Last() != nil {
			return errors.New("the agent computes configs")
		}
	}
	select {
	case m := <-received:
		return fmt.Errorf("the Envoy has received %s", m)
	default:
		return nil
	}
}
