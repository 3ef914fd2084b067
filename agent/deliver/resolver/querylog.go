package resolver

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nearside-mesh/nearside/agent/host/logpaths"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/rotation"
)

// Limits of the query log.
const (
	logMemory   = 1 << 20         // bytes of lines waiting to be written
	reopenDelay = 5 * time.Second // delay after a failed open or write
	maxWrite    = 64 << 10        // bytes per write, so that files exceed their limit only slightly
	// gatherTime is how long lines wait for further ones, because one write for each costs more
	// than the answers to a hundred queries.
	gatherTime = 10 * time.Millisecond
	gathered   = logMemory / 4 // bytes that are written at once
)

// Values of the reason label for dropped lines.
const (
	droppedFull = "full" // memory is full because the file accepts no lines
	droppedStop = "stopped"
)

// queryLog is the log of queries. Lines wait in memory until run writes them.
type queryLog struct {
	path   string
	limits rotation.Limits
	group  string
	roots  []string
	now    func() time.Time
	log    *slog.Logger
	wake   chan struct{} // one slot
	sample atomic.Uint32

	records         atomic.Uint64
	full, discarded atomic.Uint64
	file            atomic.Pointer[rotation.Plain]
	problem         atomic.Pointer[string]

	mu    sync.Mutex // held only briefly
	lines []byte
	count uint64 // number of lines
}

func newQueryLog(o Options) *queryLog {
	c := &o.Config.DNS.QueryLog
	return &queryLog{path: c.File, limits: c.Limits, group: o.Group, roots: []string{o.Config.Paths.Logs},
		now: o.Now, log: o.Log,
		wake: make(chan struct{}, 1)}
}

func (l *queryLog) setSample(n uint32) { l.sample.Store(n) }

// entry is a line of the log.
type entry struct {
	Time     string  `json:"time"`
	Client   string  `json:"client"`
	Protocol string  `json:"protocol"` // udp or tcp
	Name     string  `json:"name"`
	Type     string  `json:"type"`
	Source   string  `json:"source"` // local, cache, forwarded, or refused
	Rcode    string  `json:"rcode"`
	Answers  int     `json:"answers"`
	Bytes    int     `json:"bytes"`
	Seconds  float64 `json:"seconds,omitempty"` // latency of the upstream
	Server   string  `json:"server,omitempty"`  // that answered
	Netns    string  `json:"netns,omitempty"`   // of the client; absent: that of the agent
	Dropped  string  `json:"dropped,omitempty"` // why addresses are missing: virtual, loopback, link-local, or private
}

// add adds a query. It does not block.
func (l *queryLog) add(q dns.Sampled) {
	e := entry{Time: l.now().UTC().Format("2006-01-02T15:04:05.000000Z"), Client: q.Client.String(), Protocol: "udp",
		Name: q.Name, Type: typeName(q.Type),
		Source: q.Source, Rcode: rcodeName(q.Rcode), Answers: q.Answers, Bytes: q.Size, Seconds: q.Elapsed.Seconds(),
		Netns: q.Network, Dropped: q.Dropped}
	if q.Server.IsValid() {
		e.Server = q.Server.String()
	}
	if q.TCP {
		e.Protocol = "tcp"
	}
	line, err := json.Marshal(&e)
	if err != nil {
		return // strings and numbers always encode
	}
	l.mu.Lock()
	before := len(l.lines)
	fits := before+len(line) < logMemory
	if fits {
		l.lines = append(append(l.lines, line...), '\n')
		l.count++
	}
	wake := before == 0 || before < gathered && len(l.lines) >= gathered
	l.mu.Unlock()
	if !fits {
		l.full.Add(1)
		return
	}
	if wake {
		l.signal()
	}
}

func (l *queryLog) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the waiting lines. It reuses buffer for further ones.
func (l *queryLog) take(buffer []byte) (lines []byte, count uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, count = l.lines, l.count
	l.lines, l.count = buffer[:0], 0
	return lines, count
}

// run writes lines until ctx ends.
func (l *queryLog) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			l.finish()
			return
		case <-l.wake:
		}
		f := l.open()
		if f == nil {
			l.pause(ctx)
			continue
		}
		runCtx, stop := context.WithCancel(ctx)
		var g errgroup.Group
		g.Go(func() error { f.Run(runCtx); return nil })
		l.write(ctx, f)
		stop()
		_ = g.Wait() // Run returns no error
	}
}

// pause waits before another attempt, or until ctx ends.
func (l *queryLog) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(reopenDelay):
		l.signal()
	}
}

// requeue puts lines back in front of newer ones.
func (l *queryLog) requeue(lines []byte, count uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.count = append(slices.Clip(lines), l.lines...), l.count+count
}

// write writes lines until ctx ends. Lines that the file does not accept are retried.
func (l *queryLog) write(ctx context.Context, f *rotation.Plain) {
	var buffer []byte
	for ctx.Err() == nil {
		lines, count := l.take(buffer)
		n, err := l.writeTo(f, lines)
		buffer = lines
		if err != nil {
			l.log.Error("cannot write the query log", "file", l.path, "error", err)
			l.requeue(lines[n:], count-uint64(bytes.Count(lines[:n], []byte{'\n'})))
			buffer = nil
			l.pause(ctx)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake: // memory fills
		case <-time.After(gatherTime):
		}
	}
}

// writeTo writes and counts lines, and returns the number of bytes written.
func (l *queryLog) writeTo(f *rotation.Plain, lines []byte) (done int, err error) {
	for done < len(lines) && err == nil {
		piece := lines[done:min(done+maxWrite, len(lines))]
		if end := bytes.LastIndexByte(piece, '\n'); end >= 0 {
			piece = piece[:end+1]
		}
		var n int
		n, err = f.Write(piece)
		l.records.Add(uint64(bytes.Count(piece[:n], []byte{'\n'})))
		done += n
	}
	return done, err
}

// open opens the file, or returns nil on failure.
func (l *queryLog) open() *rotation.Plain {
	f, err := rotation.OpenPlain(rotation.Options{Path: l.path, Limits: l.limits, Group: l.group, Roots: l.roots})
	if err == nil {
		l.file.Store(f)
		l.problem.Store(nil)
		return f
	}
	why := "dns.queryLog: " + err.Error()
	if was := l.problem.Swap(&why); was == nil || *was != why {
		l.log.Error("cannot open the query log", "file", l.path, "error", err)
	}
	return nil
}

// finish writes the remaining lines. It opens the file if necessary.
func (l *queryLog) finish() {
	lines, count := l.take(nil)
	f := l.file.Load()
	if f == nil && len(lines) > 0 {
		f = l.open()
	}
	if f == nil {
		l.discarded.Add(count)
		return
	}
	if n, err := l.writeTo(f, lines); err != nil {
		l.discarded.Add(count - uint64(bytes.Count(lines[:n], []byte{'\n'})))
	}
	if err := f.Close(); err != nil {
		l.log.Error("cannot close the query log", "file", l.path, "error", err)
	}
}

// status returns the state of the log.
func (l *queryLog) status() *api.DNSQueryLog {
	out := &api.DNSQueryLog{File: l.path, Sample: l.sample.Load(), Written: l.records.Load(),
		Dropped: l.full.Load() + l.discarded.Load()}
	if f := l.file.Load(); f != nil {
		if err := f.Health(); err != nil {
			out.Problem = "dns.queryLog: " + err.Error()
		} else if why := logpaths.Future(l.path, f.Future()); why != "" {
			out.Problem = "dns.queryLog: " + why
		}
	} else if why := l.problem.Load(); why != nil {
		out.Problem = *why
	}
	return out
}

// typeName returns the name of a record type, or TYPE and its number (RFC 3597).
func typeName(t uint16) string {
	switch t {
	case 1:
		return "A"
	case 2:
		return "NS"
	case 5:
		return "CNAME"
	case 6:
		return "SOA"
	case 12:
		return "PTR"
	case 15:
		return "MX"
	case 16:
		return "TXT"
	case 28:
		return "AAAA"
	case 33:
		return "SRV"
	case 64:
		return "SVCB"
	case 65:
		return "HTTPS"
	case 255:
		return "ANY"
	}
	return "TYPE" + strconv.Itoa(int(t))
}

// rcodeName returns the name of a response code (RFC 1035, RFC 2136).
func rcodeName(r int) string {
	list := [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}
	if r < len(list) {
		return list[r]
	}
	return "RCODE" + strconv.Itoa(r)
}
