package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/source/kubernetes"
)

// good is a status as the watcher writes it.
const good = `{"node": "node1", "ready": true, "api": {"reachable": true}, "pods": 2, "services": 1, "later": []}`

var now = time.Unix(1_800_000_000, 0)

// node is a directory of the watcher with its status.
type node struct {
	t           *testing.T
	pods, state string
}

func newNode(t *testing.T) node {
	dir := t.TempDir()
	n := node{t, filepath.Join(dir, "pods"), filepath.Join(dir, "status.json")}
	n.do(os.Mkdir(n.pods, 0o750))
	n.do(os.WriteFile(filepath.Join(n.pods, kubernetes.Marker), nil, 0o640))
	n.write(good)
	return n
}

func (n node) do(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n node) write(text string) {
	n.t.Helper()
	n.do(os.WriteFile(n.state, []byte(text), 0o640))
	n.do(os.Chtimes(n.state, now, now))
}

func (n node) checks(wants bool) []api.Check {
	return kubernetes.Checks([]kubernetes.Dir{{Path: n.pods, Wants: wants}, {Path: n.pods + "/../pods/"}}, now)
}

// TestChecks checks what each state of the watcher means.
func TestChecks(t *testing.T) {
	const ok, warning, failed = "ok", "warning", "error"
	away := strings.Replace(good, `"reachable": true`, `"reachable": false, "awaySince": "2027-01-15T00:00:00Z",
		"errors": {"pods": "connection\u0007refused", "nodes": "timeout"}`, 1)
	for name, c := range map[string]struct {
		change      func(n node)
		state, want string
	}{
		"good":  {func(node) {}, ok, "the watcher follows 2 pods of this node and 1 Service"},
		"notes": {func(n node) { n.write(good[:len(good)-1] + `, "notes": ["a\u001b[2J", "b"]}`) }, ok, "2 notes in"},
		"away":  {func(n node) { n.write(away) }, warning, "since 2027-01-15T00:00:00Z (nodes, pods: timeout);"},
		"waiting": {func(n node) { n.write(good[:len(good)-1] + `, "waitingOn": ["pods", "nodes"]}`) }, warning,
			"not read all objects yet, of pods, nodes;"},
		"write error": {func(n node) { n.write(good[:len(good)-1] + `, "writeError": "disk full"}`) }, failed, "disk full"},
		"old": {func(n node) { n.do(os.Chtimes(n.state, now, now.Add(-2*time.Minute))) }, failed,
			"since 2027-01-15T07:58:00Z, so it does not run"},
		"future": {func(n node) { n.do(os.Chtimes(n.state, now, now.Add(time.Hour))) }, warning, "in the future"},
		"empty":  {func(n node) { n.write("") }, failed, "not the JSON"},
		"list":   {func(n node) { n.write("[]") }, failed, "not the JSON"},
		"count":  {func(n node) { n.write(strings.Replace(good, "2", "-2", 1)) }, failed, "pods: -2"},
		"large":  {func(n node) { n.write(good + strings.Repeat(" ", 1<<20)) }, failed, "at most 1048576"},
		"mode":   {func(n node) { n.do(os.Chmod(n.state, 0o666)) }, failed, "0666"},
		"link": {func(n node) {
			n.do(os.Rename(n.state, n.state+".real"))
			n.do(os.Symlink(n.state+".real", n.state))
		}, failed, "symbolic link"},
		"fifo": {func(n node) { n.do(os.Remove(n.state)); n.do(syscall.Mkfifo(n.state, 0o640)) }, failed,
			"not a regular file"},
		"directory": {func(n node) { n.do(os.Remove(n.state)); n.do(os.Mkdir(n.state, 0o700)) }, failed,
			"not a regular file"},
		"owner": {func(n node) {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			n.do(os.Chown(n.state, 1234, 1234))
		}, failed, "uid 1234"},
		"owner of the directory": {func(n node) {
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			n.do(os.Chown(n.state, 1234, 1234))
			n.do(os.Chown(n.pods, 1234, 1234))
		}, ok, "follows"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.t = t
			c.change(n)
			got := n.checks(false)
			if len(got) != 1 {
				t.Fatalf("%+v", got)
			}
			state := ok
			if got[0].Degraded {
				state = warning
			}
			if got[0].Error {
				state = failed
			}
			if state != c.state || !strings.Contains(got[0].Reason, c.want) || !got[0].OK || strings.ContainsAny(got[0].Reason,
				"\x07\x1b") {
				t.Errorf("%s: %+v, want %s: %s", state, got[0], c.state, c.want)
			}
		})
	}
}

// TestOnlyWatchers checks that a file status.json beside other directories means nothing, and that
// a directory of the watcher needs no marker if its role says that it is one.
func TestOnlyWatchers(t *testing.T) {
	n := newNode(t)
	n.do(os.Remove(filepath.Join(n.pods, kubernetes.Marker)))
	if got := n.checks(false); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := n.checks(true); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	n.do(os.Remove(n.state))
	if got := n.checks(true); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// FuzzDecode checks that a status never leads to a panic, and that a valid one has a time of an
// outage if there is one.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"api": {"reachable": false, "awaySince": "2027-01-15T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := kubernetes.Decode(b); err == nil && !s.API.Reachable && s.API.AwaySince == nil {
			t.Errorf("%+v", s)
		}
	})
}
