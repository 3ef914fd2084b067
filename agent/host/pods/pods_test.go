package pods_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/host/pods"
	"github.com/nearside-mesh/nearside/agent/model/access"
)

// TestMain allows finalizers to run: the directories of pods stay open when an agent stops, and the
// garbage collector closes those of TestManyRegistrations, which takes a while.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("runtime.runFinalizers"))
}

// node is the directory of pods of a node.
type node struct {
	t       *testing.T
	dir     string
	changed chan struct{}
	*pods.Pods
}

func newNode(t *testing.T, edit func(*pods.Options)) *node {
	t.Helper()
	n := &node{t: t, dir: filepath.Join(t.TempDir(), "pods"), changed: make(chan struct{}, 64)}
	must(t, os.Mkdir(n.dir, 0o750))
	must(t, os.Chmod(n.dir, 0o750))
	o := pods.Options{Dir: n.dir, Sockets: []string{"xds.sock", "otlp.sock"}, Owner: os.Geteuid(),
		Changed: func() { n.changed <- struct{}{} }}
	if edit != nil {
		edit(&o)
	}
	n.Pods = pods.New(o)
	t.Cleanup(func() { n.Listener(0).Close() })
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func web(uid string) access.Pod {
	return access.Pod{UID: uid, Namespace: "shop", Name: "web-0", ServiceAccount: "default"}
}

func text(v any) string { b, _ := json.Marshal(v); return string(b) }

// mkdir makes the directory of a pod.
func (n *node) mkdir(uid string) string {
	n.t.Helper()
	dir := filepath.Join(n.dir, uid)
	must(n.t, os.Mkdir(dir, 0o755))
	return dir
}

// write writes a registration as the CSI driver does.
func (n *node) write(file, content string) {
	n.t.Helper()
	temp := filepath.Join(n.dir, "."+file)
	must(n.t, os.WriteFile(temp, []byte(content), 0o644))
	must(n.t, os.Rename(temp, filepath.Join(n.dir, file)))
}

// add registers a pod.
func (n *node) add(p access.Pod) string {
	n.t.Helper()
	dir := n.mkdir(p.UID)
	n.write(p.UID+".json", text(p))
	return dir
}

// connect connects to a socket of a pod and returns both ends.
func (n *node) connect(dir, socket string, i int) (client, server net.Conn) {
	n.t.Helper()
	client, err := net.Dial("unix", filepath.Join(dir, socket))
	must(n.t, err)
	n.t.Cleanup(func() { client.Close() })
	server, err = n.Listener(i).Accept()
	must(n.t, err)
	n.t.Cleanup(func() { server.Close() })
	return client, server
}

// TestPodSockets checks that the peer on each socket of a pod is this pod.
func TestPodSockets(t *testing.T) {
	n := newNode(t, nil)
	a, b := web("u-a"), access.Pod{UID: "u-b", Namespace: "blog", Name: "web-0"}
	dirs := map[string]string{"u-a": n.add(a), "u-b": n.add(b)}
	n.Scan()
	for i, socket := range []string{"xds.sock", "otlp.sock"} {
		for _, want := range []access.Pod{a, b} {
			_, c := n.connect(dirs[want.UID], socket, i)
			p, err := access.PeerOf(c, false)
			if err != nil || p.Pod == nil || *p.Pod != want {
				t.Errorf("%s of %s: the peer is %+v, %v", socket, want.UID, p.Pod, err)
			}
		}
	}
	st, err := os.Stat(filepath.Join(dirs["u-a"], "xds.sock"))
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("the socket has mode %v, %v; every user of the pod must be able to connect", st.Mode(), err)
	}
	if s := n.State(); s.Served != 2 || len(s.Refused) > 0 || s.Broken != nil {
		t.Errorf("state %+v", s)
	}
}

// TestPodGone checks that the connections and sockets of a pod end with its registration.
func TestPodGone(t *testing.T) {
	n := newNode(t, nil)
	dir := n.add(web("u-a"))
	n.Scan()
	client, _ := n.connect(dir, "xds.sock", 0)
	must(t, os.Remove(filepath.Join(n.dir, "u-a.json")))
	n.Scan()
	must(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection of a pod that is gone: %v", err)
	}
	if c, err := net.Dial("unix", filepath.Join(dir, "xds.sock")); err == nil {
		c.Close()
		t.Error("the socket of a pod that is gone accepts connections")
	}
	if n.State().Served != 0 {
		t.Error("the pod is still served")
	}
}

// TestPodIdentityChanges checks that connections end when their identity is not valid any more, and
// that a new directory of a pod gets sockets.
func TestPodIdentityChanges(t *testing.T) {
	n := newNode(t, nil)
	dir := n.add(web("u-a"))
	n.Scan()
	client, _ := n.connect(dir, "xds.sock", 0)
	other := web("u-a")
	other.Name = "web-1"
	n.write("u-a.json", text(other))
	n.Scan()
	must(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection keeps the identity that its pod had: %v", err)
	}
	_, c := n.connect(dir, "xds.sock", 0)
	if p, err := access.PeerOf(c, false); err != nil || *p.Pod != other {
		t.Errorf("the peer is %+v, %v", p.Pod, err)
	}
	must(t, os.RemoveAll(dir))
	dir = n.mkdir("u-a")
	n.Scan()
	n.connect(dir, "xds.sock", 0)
	must(t, os.Remove(filepath.Join(dir, "xds.sock")))
	n.Scan()
	n.connect(dir, "xds.sock", 0)
}

// TestRefusedUpdate checks that a pod stays served while its registration is not valid.
func TestRefusedUpdate(t *testing.T) {
	n := newNode(t, nil)
	dir := n.add(web("u-a"))
	n.Scan()
	client, server := n.connect(dir, "xds.sock", 0)
	n.write("u-a.json", "{")
	n.Scan()
	if s := n.State(); s.Served != 1 || len(s.Refused) != 1 {
		t.Errorf("state %+v", s)
	}
	_, err := server.Write([]byte("x"))
	must(t, err)
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestUnreadableDirectory checks that served pods stay served while the directory of all pods is
// missing, replaced, or not safe.
func TestUnreadableDirectory(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(n *node)
		want string
	}{
		{"missing", func(n *node) { must(t, os.Rename(n.dir, n.dir+"-away")) }, "does not exist; start the CSI driver"},
		{"link", func(n *node) {
			must(t, os.Rename(n.dir, n.dir+"-away"))
			must(t, os.Symlink(n.dir+"-away", n.dir))
		}, "is a symbolic link or not a directory"},
		{"reachable for others", func(n *node) { must(t, os.Chmod(n.dir, 0o751)) }, "mode 0751"},
		{"writable for the group", func(n *node) { must(t, os.Chmod(n.dir, 0o770)) }, "mode 0770"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, nil)
			dir := n.add(web("u-a"))
			n.Scan()
			client, server := n.connect(dir, "xds.sock", 0)
			c.make(n)
			n.Scan()
			s := n.State()
			if s.Served != 1 || s.Broken == nil || !strings.Contains(s.Broken.Error(), c.want) {
				t.Errorf("state %+v; want %q", s, c.want)
			}
			_, err := server.Write([]byte("x"))
			must(t, err)
			if _, err := client.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyRegistrations checks the bounds on pods and connections.
func TestManyRegistrations(t *testing.T) {
	n := newNode(t, func(o *pods.Options) { o.Sockets, o.Conns = o.Sockets[:1], 2 })
	const most = 1024
	for i := range most + 70 {
		p := web(fmt.Sprintf("u-%04d", i))
		n.add(p)
	}
	n.Scan()
	s := n.State()
	if s.Served != most || len(s.Refused) != 64 || s.More != 6 ||
		!strings.Contains(s.Refused[0], "u-1024.json: 1024 pods are served, which is the maximum") {
		t.Errorf("%d served, %d and %d refused", s.Served, len(s.Refused), s.More)
	}
	dir := filepath.Join(n.dir, "u-0000")
	n.connect(dir, "xds.sock", 0)
	_, second := n.connect(dir, "xds.sock", 0)
	third, err := net.Dial("unix", filepath.Join(dir, "xds.sock"))
	must(t, err)
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("a pod has more connections than allowed")
	}
	third.Close()
	second.Close()
	n.connect(dir, "xds.sock", 0)
	n.connect(filepath.Join(n.dir, "u-0001"), "xds.sock", 0)
}

// TestRun checks that changes of the directory are seen when they happen, also in a directory that
// did not exist at first.
func TestRun(t *testing.T) {
	n := newNode(t, func(o *pods.Options) { o.Poll = time.Hour })
	must(t, os.Remove(n.dir))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	must(t, os.Mkdir(n.dir, 0o750))
	dir := n.add(web("u-a"))
	<-n.changed
	n.connect(dir, "xds.sock", 0)
	must(t, os.Remove(filepath.Join(n.dir, "u-a.json")))
	<-n.changed
	if n.State().Served != 0 {
		t.Error("the pod is still served")
	}
	cancel()
	must(t, <-ended)
	if _, err := n.Listener(0).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// holder holds one listener for each path.
type holder struct {
	held    map[string]net.Listener
	dropped []string
}

func (h *holder) Take(path string) net.Listener { l := h.held[path]; delete(h.held, path); return l }

func (h *holder) Add(path string, l *net.UnixListener) {
	f, err := l.File()
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if h.held[path], err = net.FileListener(f); err != nil {
		panic(err)
	}
}

func (h *holder) Drop(path string) { h.dropped = append(h.dropped, path) }

// TestHeldSockets checks that a connection that waits in a held socket reaches the next agent as
// that of its pod.
func TestHeldSockets(t *testing.T) {
	h := &holder{held: map[string]net.Listener{}}
	n := newNode(t, func(o *pods.Options) { o.Holder = h })
	dir := n.add(web("u-a"))
	n.Scan()
	n.Listener(0).Close()
	client, err := net.Dial("unix", filepath.Join(dir, "xds.sock"))
	must(t, err)
	defer client.Close()
	next := pods.New(pods.Options{Dir: n.dir, Sockets: []string{"xds.sock", "otlp.sock"}, Owner: os.Geteuid(), Holder: h})
	next.Scan()
	defer next.Listener(0).Close()
	c, err := next.Listener(0).Accept()
	must(t, err)
	defer c.Close()
	if p, err := access.PeerOf(c, false); err != nil || p.Pod.UID != "u-a" {
		t.Errorf("the peer is %+v, %v", p, err)
	}
	must(t, os.Remove(filepath.Join(n.dir, "u-a.json")))
	next.Scan()
	if len(h.dropped) != 2 {
		t.Errorf("released %q; want both sockets", h.dropped)
	}
}

// TestLink checks the names of FIFOs in the directory of a pod.
func TestLink(t *testing.T) {
	n := newNode(t, nil)
	dir := n.add(web("u-a"))
	n.Scan()
	fifos := t.TempDir()
	from, err := os.Open(fifos)
	must(t, err)
	defer from.Close()
	at := filepath.Join(dir, "access", "p")
	for range 2 { // the second FIFO replaces the first
		must(t, syscall.Mkfifo(filepath.Join(fifos, "p"), 0o622))
		for range 2 {
			must(t, n.Link("u-a", "p", int(from.Fd())))
		}
		a, err1 := os.Stat(filepath.Join(fifos, "p"))
		b, err2 := os.Stat(at)
		if err := errors.Join(err1, err2); err != nil || !os.SameFile(a, b) {
			t.Fatalf("not the same file: %v", err)
		}
		must(t, os.Remove(filepath.Join(fifos, "p")))
	}
	if err := n.Link("u-b", "p", int(from.Fd())); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Errorf("a pod that is not registered: %v", err)
	}
	for range 2 {
		must(t, n.Unlink("u-a", "p"))
	}
	must(t, n.Unlink("u-b", "p"))
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the name is left: %v", err)
	}
	must(t, os.Remove(filepath.Dir(at)))
	must(t, os.Symlink(fifos, filepath.Dir(at)))
	must(t, syscall.Mkfifo(filepath.Join(fifos, "p"), 0o622))
	if err := n.Link("u-a", "q", int(from.Fd())); err == nil {
		t.Error("a link in place of the directory is followed")
	}
	if err := n.Unlink("u-a", "p"); err == nil {
		t.Error("a link in place of the directory is followed")
	}
}
