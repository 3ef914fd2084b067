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
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

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
		entry := source || s.Kind == api.LogOTLP
		switch {
		case settled && s.In != done, !settled && s.In < done && !source:
			return fmt.Sprintf("%s %s: %d in, %d accounted: %+v", s.Kind, s.Name, s.In, done, *s)
		case entry && s.In > sent[s.Destination]:
			return fmt.Sprintf("%s %s: %d lines of %d that were sent", s.Kind, s.Name, s.In, sent[s.Destination])
		case settled && entry && s.In != sent[s.Destination]:
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

// ledger is an agent with logs to files, a TCP collector, and an OpenTelemetry collector, and the
// lines that were sent to it.
type ledger struct {
	*world
	random    *rand.Rand
	logs      string
	tcp, otlp *collector
	records   func() uint64         // that the OpenTelemetry collector has
	sent      map[string]uint64     // by destination
	files     map[string]string     // paths by destination
	pipes     map[string]string     // paths by destination
	writers   map[string]*os.File   // of pipes
	export    func(n int) error     // sends records
	sender    net.Conn              // of the receiver
	removed   map[string][]*os.File // by destination
	mounts    int                   // in the directory shadow
	cases     []alertCase
	drops     bool // lines are dropped while a file cannot be written
}

func newLedger(t *testing.T, set ...string) *ledger {
	address, records := records(t)
	l := &ledger{world: &world{t: t, dir: agenttest.Home(t)}, random: rand.New(rand.NewPCG(39, 0)), records: records.Load,
		tcp: newCollector(t, ""), otlp: newCollector(t, address), sent: map[string]uint64{}, files: map[string]string{},
		pipes: map[string]string{}, writers: map[string]*os.File{}, removed: map[string][]*os.File{}}
	l.logs = l.tmpfs("logs", "size=8m,mode=0750")
	web, in := filepath.Join(l.logs, "x/a/web.log"), filepath.Join(l.logs, "x/b/in.log")
	l.files["file "+web], l.files["file "+in] = web, in
	l.file("a.yaml", logging("{type: Tcp, tcp: {address: '"+l.tcp.address+"'}}, {type: OpenTelemetry, openTelemetry: "+
		"{endpoint: '"+l.otlp.address+"'}}, {type: File, file: {path: "+web+", rotation: {maxFiles: 0}}}"))
	l.Running = agenttest.Up(t, l.dir, l.deps, append(set,
		`accessLog.receivers=[{name: r, address: "127.0.0.1:0", file: x/b/in.log, maxConnections: 1}]`)...)
	l.stream("default.web", "")
	agenttest.Eventually(t, "the FIFOs and the route exist", func() bool {
		got, err := l.Api().AccessLogs(t.Context())
		agenttest.Do(t, err)
		for i := range got.Items {
			switch s := &got.Items[i]; {
			case s.Kind == api.LogFIFO:
				l.pipes[s.Destination] = s.Name
			case s.Kind == api.LogOTLP && l.export == nil:
				l.export = l.exporter(s.Name)
			}
		}
		return len(l.pipes) == 2 && l.export != nil
	})
	var err error
	l.sender, err = net.Dial("tcp", l.Receivers()[0].Address)
	agenttest.Do(t, err)
	t.Cleanup(func() {
		l.sender.Close()
		for _, f := range l.writers {
			f.Close()
		}
		for _, files := range l.removed {
			for _, f := range files {
				f.Close()
			}
		}
	})
	l.openPipes()
	return l
}

// openPipes opens the FIFOs at their paths, as an Envoy does.
func (l *ledger) openPipes() {
	for to, path := range l.pipes {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		agenttest.Do(l.t, err)
		if before := l.writers[to]; before != nil {
			before.Close()
		}
		l.writers[to] = f
	}
}

// send sends some lines to all destinations.
func (l *ledger) send() {
	lines := func(to string) (b []byte) { // at most PIPE_BUF, as Envoy writes them
		for range 1 + l.random.IntN(40) {
			b = fmt.Appendf(b, "%08d%sx\n", l.sent[to], strings.Repeat("x", 90))
			l.sent[to]++
		}
		return b
	}
	for to, f := range l.writers {
		_, err := f.Write(lines(to))
		agenttest.Do(l.t, err)
	}
	_, err := l.sender.Write(lines("file " + filepath.Join(l.logs, "x/b/in.log")))
	agenttest.Do(l.t, err)
	n := 1 + l.random.IntN(40)
	agenttest.Do(l.t, l.export(n))
	l.sent["otlp "+l.otlp.address] += uint64(n)
}

// balance waits until the account adds up.
func (l *ledger) balance() {
	diff := ""
	defer func() {
		if l.t.Failed() {
			l.t.Log(diff)
		}
	}()
	agenttest.Eventually(l.t, "the account adds up", func() bool {
		diff = l.accounted(l.sent, true)
		return diff == ""
	})
}

// stored returns the numbers of the lines to a destination in all files, and those in removed
// files. Other lines are markers of dropped lines.
func (l *ledger) stored(to string) map[string]bool {
	out, seen := map[string]bool{}, map[uint64]bool{}
	read := func(f *os.File, repeats bool) {
		_, err := f.Seek(0, io.SeekStart)
		agenttest.Do(l.t, err)
		b, err := io.ReadAll(f)
		agenttest.Do(l.t, err)
		for line := range bytes.Lines(b) {
			if !bytes.HasSuffix(line, []byte("x\n")) {
				continue
			}
			number := string(line[:8])
			if out[number] && !repeats {
				l.t.Errorf("%s has line %s twice", to, number)
			}
			out[number] = true
		}
	}
	name := strings.TrimSuffix(filepath.Base(l.files[to]), ".log")
	for _, dir := range []string{l.logs, filepath.Join(l.dir, "shadow")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) { // a shadow of a removed directory
				return nil
			}
			if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), name) || strings.HasSuffix(d.Name(), ".lock") {
				return err
			}
			f, err := os.Open(path)
			agenttest.Do(l.t, err)
			defer f.Close()
			st, err := f.Stat()
			agenttest.Do(l.t, err)
			sys := st.Sys().(*syscall.Stat_t)
			if id := sys.Dev<<40 ^ sys.Ino; !seen[id] { // bind mounts show a file at many paths
				seen[id] = true
				read(f, false)
			}
			return nil
		})
		agenttest.Do(l.t, err)
	}
	for _, f := range l.removed[to] { // the last lines of a removed file are also in the next one
		read(f, true)
	}
	return out
}

// TestAccountAddsUp sends lines through the FIFOs of a proxy, a receiver, and OTLP while disks,
// directories, senders, and collectors fail in random order. The account must add up at each
// moment, and in the end contain all lines, which the files have except the dropped ones. Each
// fault that the agent reports at once has its problem, its metric, and its alert; see ledgerFault.
func TestAccountAddsUp(t *testing.T) {
	var cases [2][]alertCase
	t.Run("faults", func(t *testing.T) {
		t.Run("lines wait", func(t *testing.T) { t.Parallel(); cases[0] = addsUp(t) })
		t.Run("lines drop", func(t *testing.T) {
			t.Parallel()
			cases[1] = addsUp(t, "accessLog.onFull=dropNewest", "accessLog.spool.maxSize=0")
		})
	})
	testAlerts(t, append(cases[0], cases[1]...))
}

func addsUp(t *testing.T, set ...string) []alertCase {
	l := newLedger(t, set...)
	l.drops = len(set) > 0
	faults, begun := l.faults(), ""
	for _, i := range l.random.Perm(len(faults)) {
		f := &faults[i]
		begun += fmt.Sprintf("%s from %d\n", f.name, l.sent["file "+filepath.Join(l.logs, "x/a/web.log")])
		before := samples(t, l.Running)
		f.begin()
		for range 1 + l.random.IntN(8) {
			l.send()
			if l.random.IntN(3) == 0 {
				if diff := l.accounted(l.sent, false); diff != "" {
					t.Errorf("%s: %s", f.name, diff)
				}
			}
		}
		l.reported(f, before)
		f.heal()
		l.send()
	}
	l.balance()
	got, err := l.Api().AccessLogs(t.Context())
	agenttest.Do(t, err)
	dropped := map[string]uint64{}
	for i := range got.Items {
		for _, n := range got.Items[i].Dropped {
			dropped[got.Items[i].Destination] += n
		}
	}
	list, _ := differences(t, l.Running)
	classes := countsOf(list)
	if lost := classes[[2]string{api.ClassLogDropped, bad}]; lost > 0 != (len(set) > 0) ||
		classes[[2]string{api.ClassLogSenders, warn}] != 1 {
		t.Errorf("problems: %v", classes)
	}
	l.showDisks()
	for _, to := range []string{
		"file " + filepath.Join(l.logs, "x/a/web.log"), "file " + filepath.Join(l.logs, "x/b/in.log"),
	} {
		have := l.stored(to)
		n := uint64(len(have))
		if n+dropped[to] != l.sent[to] || len(set) == 0 && dropped[to] > 0 {
			missing := ""
			for i := range l.sent[to] {
				if !have[fmt.Sprintf("%08d", i)] {
					missing += fmt.Sprintf(" %d", i)
				}
			}
			t.Errorf("%s: %d sent, %d stored, %d dropped; missing:%s\n%s", to, l.sent[to], n, dropped[to], missing, begun)
		}
	}
	diff := ""
	defer func() {
		if t.Failed() {
			t.Log(diff)
		}
	}()
	agenttest.Eventually(t, "the collectors have all lines", func() bool {
		diff = l.collected()
		return diff == ""
	})
	return l.cases
}

// collected compares the accounts of the collectors with their lines, and returns a difference. A
// TCP collector that resets loses its unread lines.
func (l *ledger) collected() string {
	got, err := l.Api().AccessLogs(l.t.Context())
	agenttest.Do(l.t, err)
	for i := range got.Items {
		s := &got.Items[i]
		if s.Kind != api.LogForwarder && s.Kind != api.LogOTLP {
			continue
		}
		n := l.tcp.lines.Load()
		if s.Kind == api.LogOTLP {
			n = l.records()
		}
		if n > s.Written+s.Repeated || n < s.Written && s.Kind == api.LogOTLP || s.Written != s.In {
			return fmt.Sprintf("the collector has %d lines: %+v", n, *s)
		}
	}
	return ""
}

// reported checks that a fault has its problem and its metric, and collects the series of its
// alert.
func (l *ledger) reported(f *ledgerFault, before map[string]float64) {
	l.t.Helper()
	if f.check == "" {
		return
	}
	var list []api.Problem
	var after map[string]float64
	defer func() {
		if l.t.Failed() {
			l.t.Log(f.name, list)
		}
	}()
	sends := 0
	agenttest.Eventually(l.t, f.name+" is a problem with a metric", func() bool {
		if l.drops && f.ends && sends < 1000 { // the marker of the dropped lines may have fitted on the disk
			l.send()
			sends++
		}
		s, err := l.Api().Status(l.t.Context())
		agenttest.Do(l.t, err)
		list = s.Problems
		found := false
		for _, p := range list {
			found = found || p.Check == f.check && strings.Contains(p.Reason, f.cause)
		}
		if !found {
			return false
		}
		after = samples(l.t, l.Running)
		for name, value := range after {
			if strings.HasPrefix(name, f.metric) && (value > before[name] || value > 0 && !strings.Contains(name, "_total")) {
				return true
			}
		}
		return false
	})
	l.cases = append(l.cases, alertCase{name: l.t.Name() + " " + f.name, fires: map[string]bool{f.alert: true},
		series: seriesOf(l.t, before, after, false, l.now())})
}
