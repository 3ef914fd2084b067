package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nearside-mesh/nearside/gossip/engine"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestThreeNodes checks that members find each other, that changes of all sizes and deletions
// arrive, and that a node's items are removed when it leaves.
func TestThreeNodes(t *testing.T) {
	for name, o := range map[string]Options{
		"encrypted": {},
		"insecure":  {Insecure: true},
		"TCP only":  {TCPOnly: true},
		"IPv6":      {Bind: []netip.AddrPort{netip.MustParseAddrPort("[::1]:0")}},
		"both":      {Bind: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("[::1]:0")}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(fmt.Sprint(o.Bind), "::1") {
				if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
					t.Skipf("no IPv6 here: %v", err)
				} else {
					_ = l.Close()
				}
			}
			a := socketNode(t, 1, o)
			b := socketNode(t, 2, o, a)
			c := socketNode(t, 3, o, a)
			nodes := []running{a, b, c}
			for _, n := range nodes {
				waitFor(t, n, "three members", members(n, 3))
			}
			large := strings.Repeat("x", 60<<10)
			if _, err := a.Put(engine.Put{Key: keyA, Body: []byte("small")},
				engine.Put{Key: keyB, Body: []byte(large), MediaType: "text/plain"}); err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				waitFor(t, n, "the changes", func() bool { return body(n, keyA) == "small" && body(n, keyB) == large })
			}
			waitFor(t, a, "answers of both that agree", func() bool {
				k := 0
				for _, m := range a.Members() {
					if m.Agrees && m.RTT > 0 && m.RTT < time.Second {
						k++
					}
				}
				return k == 2
			})
			if st := a.Stats(); st.PacketsIn == 0 || st.BytesOut == 0 || st.StreamsIn == 0 {
				t.Errorf("figures of the transport: %+v", st)
			}
			if _, err := b.Delete(keyA); err != nil {
				t.Fatal(err)
			}
			if err := c.SetOwn([]engine.OwnItem{{Key: engine.Key{Kind: "D", Mesh: "m", Name: "c-1"}, Body: []byte("dataplane")},
				{Key: engine.Key{Kind: "D", Mesh: "m", Name: "c-2"}, Body: make([]byte, 16<<10)}}); err != nil {
				t.Fatal(err)
			}
			owned := func(n running, items int) func() bool {
				return func() bool {
					for _, o := range n.Owned() {
						if o.Node == simID(3) {
							return len(o.Items) == items && o.Name == "node-3"
						}
					}
					return false
				}
			}
			for _, n := range nodes {
				waitFor(t, n, "the deletion", func() bool { return n.Record(keyA).Deleted && len(n.Records()) == 1 })
				waitFor(t, n, "the items of node 3", owned(n, 2))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := c.Leave(ctx, nil); err != nil {
				t.Fatal(err)
			}
			waitFor(t, a, "node 3 has left", owned(a, 0))
			waitFor(t, a, "its state", func() bool {
				for _, m := range a.Members() {
					if m.Node == simID(3) {
						return m.State == "left"
					}
				}
				return false
			})
			stopAll(nodes)
		})
	}
}

// TestAsk checks that a member answers short and long questions, and that Ask fails at once for
// unknown or dead members.
func TestAsk(t *testing.T) {
	a := socketNode(t, 1, Options{})
	b := socketNode(t, 2, Options{Answer: func(ctx context.Context, q []byte) []byte {
		if string(q) == "silence" {
			return nil
		}
		return append([]byte("answer to "), q...)
	}}, a)
	waitFor(t, a, "two members", members(a, 2))
	waitFor(t, b, "two members", members(b, 2)) // it answers only members that it knows
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, q := range []string{"x", strings.Repeat("x", MaxQuestion-10)} {
		if got, err := a.Ask(ctx, simID(2), []byte(q)); err != nil || string(got) != "answer to "+q {
			t.Errorf("%d bytes: %d bytes, %v", len(q), len(got), err)
		}
	}
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	for what, c := range map[string]struct {
		of   engine.NodeID
		q    string
		want error
	}{
		"silent":   {simID(2), "silence", context.DeadlineExceeded},
		"unknown":  {simID(9), "x", ErrNoMember},
		"too long": {simID(2), strings.Repeat("x", MaxQuestion+1), ErrTooLong},
	} {
		if _, err := a.Ask(short, c.of, []byte(c.q)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	for _, junk := range []string{"\xe1", "\xe1234567890", "\xe112345678\xff", "\xe212345678\x01a answer to nothing"} {
		if !a.handleFrame([]byte(junk)) {
			t.Errorf("%q is given to the engine", junk)
		}
	}
	stopAll([]running{a, b})
}

// TestStrangers checks that nodes with another key or of another cluster cannot join, and that
// garbage on the port has no effect.
func TestStrangers(t *testing.T) {
	a := socketNode(t, 1, Options{})
	other := socketNode(t, 2, Options{Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}}, a)
	foreign := socketNode(t, 3, Options{Cluster: "other"}, a)
	plain := socketNode(t, 4, Options{Insecure: true}, a)
	addr := a.Addr().String()
	for _, garbage := range [][]byte{nil, {streamByte}, {streamByte, 0xff, 0xff, 0xff, 0xff}, {streamByte, 0, 0, 0, 0},
		append([]byte{streamByte, 0, 0, 0, 9}, "ninebytes"...),
		[]byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{244}, 300), make([]byte, 1200)} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(garbage)
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second)) // less than the minute after which silent connections close
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection with %.20q stays open", garbage)
		}
		_ = c.Close()
		u, err := net.Dial("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = u.Write(garbage)
		_ = u.Close()
	}
	for _, n := range []running{other, foreign, plain} {
		if got := n.Join(addr); got != 0 {
			t.Errorf("%s could join", n.opt.Name)
		}
	}
	b := socketNode(t, 5, Options{}, a)
	waitFor(t, b, "a node with the key joins", members(b, 2))
	waitFor(t, a, "it knows the new member", func() bool { _, ok := lookUp(a, simID(5)); return ok })
	for _, n := range []running{a, b} {
		if got := alive(n); got != 2 {
			t.Errorf("%d members: %v", got, n.Members())
		}
	}
	stopAll([]running{a, b, other, foreign, plain})
}

// TestKeysAreChanged rotates the key of a running pool.
func TestKeysAreChanged(t *testing.T) {
	a := socketNode(t, 1, Options{})
	b := socketNode(t, 2, Options{}, a)
	waitFor(t, b, "two members", members(b, 2))
	next := bytes.Repeat([]byte{9}, 32)
	for _, keys := range [][][]byte{{testKey, next}, {next, testKey}, {next}} {
		for _, n := range []running{a, b} {
			if err := n.UseKeys(keys); err != nil {
				t.Fatal(err)
			}
		}
		text := fmt.Sprint(len(keys), keys[0][0])
		if _, err := a.Put(engine.Put{Key: keyA, Body: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, b, "a change under "+text, func() bool { return body(b, keyA) == text })
	}
	old := socketNode(t, 3, Options{})
	if old.Join(a.Addr().String()) != 0 {
		t.Error("a node with the old key could join")
	}
	if err := a.UseKeys(nil); err == nil {
		t.Error("all keys could be removed")
	}
	stopAll([]running{a, b, old})
}

// TestRestart checks that acknowledged changes survive a restart, and that a node without data gets
// all records from its peers.
func TestRestart(t *testing.T) {
	stores := []*memory{newMemory(), newMemory()}
	a := socketNode(t, 1, Options{Storage: stores[0]})
	b := socketNode(t, 2, Options{Storage: stores[1]}, a)
	waitFor(t, b, "two members", members(b, 2))
	if _, err := a.Put(engine.Put{Key: keyA, Body: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, b, "the change", func() bool { return body(b, keyA) == "1" })
	epoch := a.Stats().Epoch
	stopAll([]running{a, b})
	if _, err := a.Put(engine.Put{Key: keyB, Body: []byte("written while it did not run")}); err != nil {
		t.Error(err)
	}
	a = socketNode(t, 1, Options{Storage: stores[0]})
	if body(a, keyA) != "1" || body(a, keyB) == "" || a.Stats().Epoch <= epoch {
		t.Errorf("after a restart: %v, epoch %d after %d", a.Records(), a.Stats().Epoch, epoch)
	}
	b = socketNode(t, 2, Options{Storage: stores[1]}, a)
	c := socketNode(t, 3, Options{}, a)
	for _, n := range []running{b, c} {
		waitFor(t, n, "the changes written meanwhile", func() bool { return body(n, keyB) != "" && body(n, keyA) == "1" })
	}
	// With a failing disk, no change is acknowledged.
	stores[0].mu.Lock()
	stores[0].err = errors.New("no space left on device")
	stores[0].mu.Unlock()
	if _, err := a.Put(engine.Put{Key: keyA, Body: []byte("2")}); err == nil ||
		!strings.Contains(err.Error(), "no space") {
		t.Errorf("a change on a full disk: %v", err)
	}
	if body(a, keyA) != "1" {
		t.Error("a change that was refused is in force")
	}
	if _, err := c.Put(engine.Put{Key: keyA, Body: []byte("3")}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, a, "a change of another node, in memory", func() bool { return body(a, keyA) == "3" })
	waitFor(t, a, "the state of the disk", func() bool { return a.Stats().SaveError != "" })
	stores[0].mu.Lock()
	stores[0].err = nil
	stores[0].mu.Unlock()
	waitFor(t, a, "pending operations are saved", func() bool {
		s := a.Stats()
		return s.SaveError == "" && s.Unsaved == 0
	})
	stopAll([]running{a, b, c})
}

// TestWatch checks that a watcher first gets all records, then changes, and that several changes of
// a key are merged.
func TestWatch(t *testing.T) {
	n := socketNode(t, 1, Options{})
	if _, err := n.Put(engine.Put{Key: keyA, Body: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	w := n.Watch()
	<-w.C()
	if got := w.Take(); len(got) != 1 || got[0].Key != keyA {
		t.Errorf("at first: %v", got)
	}
	for i := range 5 {
		if _, err := n.Put(engine.Put{Key: keyB, Body: []byte(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	<-w.C()
	if got := w.Take(); len(got) != 1 || got[0].Key != keyB {
		t.Errorf("after five changes: %v", got)
	}
	w.Close()
	if _, err := n.Delete(keyB); err != nil {
		t.Fatal(err)
	}
	if got := w.Take(); len(got) != 0 {
		t.Errorf("after the end: %v", got)
	}
	n.stop()
}

func TestOptionsRefuse(t *testing.T) {
	good := Options{Self: engine.NodeID{1}, Cluster: "c", Keys: [][]byte{testKey}}
	for want, change := range map[string]func(*Options){
		"Self is required":                func(o *Options) { o.Self = engine.NodeID{} },
		"Cluster has 0 bytes":             func(o *Options) { o.Cluster = "" },
		"Keys is empty":                   func(o *Options) { o.Keys = nil },
		"both Keys and Insecure":          func(o *Options) { o.Insecure = true },
		"Keys[1] has 5 bytes":             func(o *Options) { o.Keys = append(o.Keys, []byte("short")) },
		"Bind[0] is not a valid address":  func(o *Options) { o.Bind = []netip.AddrPort{{}} },
		"Bind[1] is a second":             func(o *Options) { o.Bind = append(loopback[:1:1], loopback...) },
		"Name, Zone and Version may have": func(o *Options) { o.Name = strings.Repeat("x", 65) },
		"load saved state: oh!":           func(o *Options) { o.Storage = broken{} },
	} {
		o := good
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

type broken struct{ noStorage }

func (broken) Load() ([]engine.Op, error) { return nil, errors.New("oh!") }

func FuzzMeta(f *testing.F) {
	f.Add(meta{node: engine.NodeID{1}, epoch: 7, name: "n", zone: "z"}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		m.signature, m.signed = "", 0 // not part of the encoding
		if decoded, err := decodeMeta(m.encode()); err != nil || decoded != m || len(m.encode()) > 512 {
			t.Errorf("%+v is encoded as %+v (%v)", m, decoded, err)
		}
	})
}

// TestLogIsBounded checks that a flood of log lines is truncated, and that the number of dropped
// lines is logged.
func TestLogIsBounded(t *testing.T) {
	var out bytes.Buffer
	w := &logWriter{log: slog.New(slog.NewTextHandler(&out, nil))}
	oneProcessor(t)
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			if _, err := w.Write([]byte("2026/11/23 12:00:00 [ERR] memberlist: Decrypt packet failed: no installed keys could " +
				"decrypt the message\n")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		if _, err := w.Write([]byte("2026/11/23 12:00:02 [DEBUG] memberlist: hidden\n" +
			"2026/11/23 [WARN] memberlist: shown\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("2026/11/23 12:00:02 [WARN] memberlist: shown\n")); err != nil {
			t.Fatal(err)
		}
	})
	if got := out.String(); strings.Count(got, "Decrypt packet failed") != logRate || !strings.Contains(got,
		"dropped=980") || !strings.Contains(got, "membership: shown") || strings.Contains(got, "hidden") {
		t.Errorf("logged: %s", got)
	}
}
