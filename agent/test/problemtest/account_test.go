package problemtest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// collector is a TCP collector that counts lines. It can stop reading, reset its connections, and
// be away.
type collector struct {
	t       *testing.T
	address string
	lines   atomic.Uint64
	all     sync.WaitGroup

	mu      sync.Mutex
	l       net.Listener // nil: away
	conns   map[net.Conn]bool
	reading *sync.Cond // on mu
	reads   bool
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t, address: "127.0.0.1:0", conns: map[net.Conn]bool{}, reads: true}
	c.reading = sync.NewCond(&c.mu)
	c.open()
	t.Cleanup(func() { c.read(true); c.reset(); c.close(); c.all.Wait() })
	return c
}

func (c *collector) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.l != nil {
		return
	}
	l, err := net.Listen("tcp", c.address)
	agenttest.Do(c.t, err)
	c.l, c.address = l, l.Addr().String()
	c.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			c.conns[conn] = true
			c.mu.Unlock()
			c.all.Go(func() { c.serve(conn) })
		}
	})
}

func (c *collector) serve(conn net.Conn) {
	b := make([]byte, 64<<10)
	for {
		c.mu.Lock()
		for !c.reads {
			c.reading.Wait()
		}
		c.mu.Unlock()
		n, err := conn.Read(b)
		c.lines.Add(uint64(bytes.Count(b[:n], []byte{'\n'})))
		if err != nil {
			conn.Close()
			c.mu.Lock()
			delete(c.conns, conn)
			c.mu.Unlock()
			return
		}
	}
}

func (c *collector) read(reads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads = reads
	c.reading.Broadcast()
}

// reset resets the connections.
func (c *collector) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// close makes the collector unavailable for new connections.
func (c *collector) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.l != nil {
		c.l.Close()
		c.l = nil
	}
}

// accounted checks that the lines of all streams add up, and that no source has more lines than
// were sent. With settled, the stages must agree, too. It returns the first difference.
func (w *world) accounted(sent map[string]uint64, settled bool) string {
	got, err := w.Api().AccessLogs(w.t.Context())
	agenttest.Do(w.t, err)
	passed := map[string]uint64{}
	for i := range got.Items {
		s := &got.Items[i]
		done := s.Written + s.Spooled + s.InFlight
		for _, n := range s.Dropped {
			done += n
		}
		source := s.Kind == api.LogFIFO || s.Kind == api.LogReceiver
		switch {
		case settled && s.In != done, !settled && s.In < done && !source:
			return fmt.Sprintf("%s %s: %d in, %d accounted: %+v", s.Kind, s.Name, s.In, done, *s)
		case source && s.In > sent[s.Destination]:
			return fmt.Sprintf("%s %s: %d lines of %d that were sent", s.Kind, s.Name, s.In, sent[s.Destination])
		case settled && source && s.In != sent[s.Destination]:
			return fmt.Sprintf("%s %s: %d lines, but %d were sent", s.Kind, s.Name, s.In, sent[s.Destination])
		}
		if source {
			passed[s.Destination] += s.Written
		}
	}
	for i := range got.Items {
		s := &got.Items[i]
		if settled && (s.Kind == api.LogFile || s.Kind == api.LogForwarder) && s.In != passed[s.Destination] {
			return fmt.Sprintf("%s %s: %d in, but its sources passed %d on", s.Kind, s.Name, s.In, passed[s.Destination])
		}
	}
	for i := range got.Proxies {
		p := &got.Proxies[i]
		done := p.Written + p.InFlight
		for _, n := range p.Dropped {
			done += n
		}
		if settled && (p.In != done || p.In != sent[p.Destination]) {
			return fmt.Sprintf("the account of %s to %s: %d sent, %d in, %d accounted", p.Dataplane, p.Destination,
				sent[p.Destination], p.In, done)
		}
	}
	return ""
}

// TestAccountAddsUp sends lines through the FIFOs of a proxy and a receiver while disks,
// directories, senders, and a collector fail at random. The account must add up at each moment, and
// in the end contain all lines, which the files have except the dropped ones.
func TestAccountAddsUp(t *testing.T) {
	for name, set := range map[string][]string{
		"lines wait": nil,
		"lines drop": {"accessLog.onFull=dropNewest", "accessLog.spool.maxSize=0"},
	} {
		t.Run(name, func(t *testing.T) { addsUp(t, set...) })
	}
}

func addsUp(t *testing.T, set ...string) {
	c := newCollector(t)
	w := &world{t: t, dir: agenttest.Home(t)}
	logs := w.tmpfs("logs", "size=8m,mode=0750")
	files := map[string]string{"proxy": filepath.Join(logs, "a/web.log"), "receiver": filepath.Join(logs, "b/in.log")}
	w.file("a.yaml", logging("{type: Tcp, tcp: {address: '"+c.address+"'}}, {type: File, file: {path: "+files["proxy"]+
		", rotation: {maxFiles: 0}}}"))
	w.Running = agenttest.Up(t, w.dir, w.deps, append(set,
		`accessLog.receivers=[{name: r, address: "127.0.0.1:0", file: b/in.log, maxConnections: 1}]`)...)
	w.stream("default.web", "")
	tcp, file, receiver := "tcp "+c.address, "file "+files["proxy"], "file "+files["receiver"]
	fifo := map[string]string{} // paths by destination
	agenttest.Eventually(t, "the FIFOs exist", func() bool {
		got, err := w.Api().AccessLogs(t.Context())
		agenttest.Do(t, err)
		for i := range got.Items {
			if s := &got.Items[i]; s.Kind == api.LogFIFO {
				fifo[s.Destination] = s.Name
			}
		}
		return len(fifo) == 2
	})
	sender, err := net.Dial("tcp", w.Receivers()[0].Address)
	agenttest.Do(t, err)
	defer sender.Close()
	sent := map[string]uint64{}
	random := rand.New(rand.NewPCG(39, 0))
	send := func() {
		lines := func(to string) []byte { // at most PIPE_BUF, as Envoy writes them
			n := 1 + random.IntN(40)
			sent[to] += uint64(n)
			return bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), n)
		}
		for path, to := range map[string]string{fifo[tcp]: tcp, fifo[file]: file} {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			agenttest.Do(t, err)
			_, err = f.Write(lines(to))
			agenttest.Do(t, err, f.Close())
		}
		_, err := sender.Write(lines(receiver))
		agenttest.Do(t, err)
	}
	faults := []struct {
		name        string
		begin, heal func()
	}{
		{"full disk", func() { full(w, logs) }, func() { agenttest.Do(t, os.Remove(filepath.Join(logs, "filler"))) }},
		{"collector away", func() { c.close(); c.reset() }, c.open},
		{"collector that does not read", func() { c.read(false) }, func() { c.read(true) }},
		{"moved directory", func() {
			agenttest.Do(t, os.Rename(filepath.Join(logs, "a"), filepath.Join(logs, fmt.Sprint("old", random.IntN(1e9)))))
		}, func() {
			agenttest.Eventually(t, "the directory is created again", func() bool {
				_, err := os.Stat(files["proxy"])
				return err == nil
			})
		}},
		{"refused senders", func() { w.dial().Close() }, func() {}},
	}
	for range 12 {
		f := &faults[random.IntN(len(faults))]
		f.begin()
		for range 1 + random.IntN(8) {
			send()
			if random.IntN(3) == 0 {
				if diff := w.accounted(sent, false); diff != "" {
					t.Errorf("%s: %s", f.name, diff)
				}
			}
		}
		f.heal()
		send()
	}
	diff := ""
	defer func() {
		if t.Failed() {
			t.Log(diff)
		}
	}()
	agenttest.Eventually(t, "the account adds up", func() bool {
		diff = w.accounted(sent, true)
		return diff == ""
	})
	got, err := w.Api().AccessLogs(t.Context())
	agenttest.Do(t, err)
	dropped := map[string]uint64{}
	for i := range got.Items {
		for _, n := range got.Items[i].Dropped {
			dropped[got.Items[i].Destination] += n
		}
	}
	list, _ := differences(t, w.Running)
	classes := countsOf(list)
	if lost := classes[[2]string{api.ClassLogDropped, bad}]; lost > 0 != (len(set) > 0) ||
		classes[[2]string{api.ClassLogSenders, warn}] != 1 {
		t.Errorf("problems: %v", classes)
	}
	for stem, to := range map[string]string{"web": file, "in": receiver} {
		if n := stored(t, logs, stem); n+dropped[to] != sent[to] || len(set) == 0 && dropped[to] > 0 {
			t.Errorf("%s: %d sent, %d stored, %d dropped", to, sent[to], n, dropped[to])
		}
	}
	for i := range got.Items {
		if s := &got.Items[i]; s.Kind == api.LogForwarder && (c.lines.Load() > s.Written+s.Repeated || s.Written != s.In) {
			t.Errorf("the collector has %d lines: %+v", c.lines.Load(), *s)
		}
	}
}

// stored returns the number of sent lines in log files whose names begin with stem. Other lines are
// markers of dropped lines.
func stored(t *testing.T, dir, stem string) (n uint64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), stem) || strings.HasSuffix(d.Name(), ".lock") {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		n += uint64(bytes.Count(b, []byte("x\n")))
		return err
	})
	if err != nil {
		t.Log(err) // a directory was moved meanwhile
	}
	return n
}
