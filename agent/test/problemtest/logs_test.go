package problemtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/accesslog/spool"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// dial connects a sender to the receiver of the agent.
func (w *world) dial() net.Conn {
	c, err := net.Dial("tcp", w.Receivers()[0].Address)
	agenttest.Do(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	return c
}

// oldSpool leaves a line of an earlier agent for a collector that is away. The clock of synctest
// starts in 2000.
func (w *world) oldSpool(lines int) {
	dir := filepath.Join(w.dir, "state/spool/tcp-127.0.0.1%3A1")
	agenttest.Do(w.t, os.MkdirAll(filepath.Dir(dir), 0o750))
	synctest.Test(w.t, func(t *testing.T) {
		f, err := spool.NewForwarder(spool.ForwarderOptions{Address: "127.0.0.1:1",
			Spool: spool.Options{Dir: dir, MaxBytes: 1 << 20}})
		agenttest.Do(t, err)
		for range lines {
			_, err = f.Write(context.Background(), []byte(strings.Repeat("x", 1000)+"\n"))
			agenttest.Do(t, err)
		}
		agenttest.Do(t, f.Close())
	})
}

// admin answers as the admin socket of the Envoy of a dataplane, with counters.
func (w *world) admin(counters string) {
	uid := strconv.Itoa(os.Getuid())
	dir := filepath.Join(w.dir, "run/envoy", uid)
	agenttest.Do(w.t, os.MkdirAll(dir, 0o700))
	l, err := net.Listen("unix", filepath.Join(dir, "default.web.sock"))
	agenttest.Do(w.t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/listeners" {
			_, _ = io.WriteString(rw, "inbound:10.0.0.1:8080::10.0.0.1:8080\n")
			return
		}
		_, _ = io.WriteString(rw, counters)
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	w.t.Cleanup(func() { s.Close(); <-ended })
}

// smallBuffer makes the kernel receive few bytes for a process that does not read.
func smallBuffer(_, _ string, c syscall.RawConn) (err error) {
	return errors.Join(c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
	}), err)
}

// fill writes lines into a FIFO.
func (w *world) fill(path string) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	agenttest.Do(w.t, err)
	_, err = f.Write(bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 40))
	agenttest.Do(w.t, err, f.Close())
}

// logging returns the shop with access logs of backends.
func logging(backends string) string {
	return with("{type: MeshAccessLog, mesh: default, name: l, spec: {targetRef: {kind: Mesh}, " +
		"from: [{targetRef: {kind: Mesh}, default: {backends: [" + backends + "]}}]}}")
}

// logFaults are losses of access logs.
var logFaults = []fault{
	{name: "refused senders", set: []string{
		`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: a.log, maxConnections: 1}]`}, after: func(w *world) {
		w.dial()
		for range 3 {
			_, _ = w.dial().Read(make([]byte, 1)) // it is closed, unless it is the first one
		}
	}, check: api.ClassLogSenders, severity: warn, cause: "receiver a has refused 3 connections",
		alerts: "NearsideLogSendersRefused"},
	{name: "lines dropped on a full disk", before: func(w *world) { w.tmpfs("logs", "size=256k,mode=0750") },
		set: []string{`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: t/a.log}]`,
			"accessLog.onFull=dropNewest", "accessLog.spool.maxSize=0"}, after: func(w *world) {
			full(w, filepath.Join(w.dir, "logs"))
			_, err := w.dial().Write(make([]byte, 4096))
			agenttest.Do(w.t, err)
			_, err = w.dial().Write([]byte("one\ntwo\n"))
			agenttest.Do(w.t, err)
		}, check: api.ClassLogDropped, severity: bad, cause: "dropped (disk-full)", alerts: "NearsideLogLinesDropped"},
	{name: "a collector that does not read", before: func(w *world) {
		var ahead atomic.Int64
		w.deps.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		l, err := (&net.ListenConfig{Control: smallBuffer}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
		agenttest.Do(w.t, err)
		w.t.Cleanup(func() { l.Close() })
		w.file("a.yaml", logging("{type: Tcp, tcp: {address: '"+l.Addr().String()+"'}}"))
		w.started = func() {
			w.stream("default.web", "")
			agenttest.Eventually(w.t, "lines wait for the collector", func() bool {
				got, err := w.Api().AccessLogs(w.t.Context())
				agenttest.Do(w.t, err)
				for i := range got.Items {
					switch s := &got.Items[i]; {
					case s.Kind == api.LogFIFO:
						w.fill(s.Name)
					case s.InFlight > 100: // the buffers of the kernel are full
						return true
					}
				}
				return false
			})
			_, _ = w.Request("GET", "http://nearside/metrics", "")
			ahead.Store(int64(40 * time.Second))
		}
	}, check: api.ClassLogCollector, severity: warn, cause: "has acknowledged no line for ",
		alerts: "NearsideLogCollectorStalled"},
	{name: "old lines in a spool", before: func(w *world) { w.oldSpool(1) }, check: api.ClassLogSpool, severity: warn,
		cause: "1 line waits for tcp 127.0.0.1:1", alerts: "NearsideLogSpoolOld"},
	{name: "a spool that is half full", set: []string{"accessLog.spool.maxSize=1"},
		before: func(w *world) { w.oldSpool(700) }, check: api.ClassLogSpool, severity: warn,
		cause: "700 lines wait for tcp 127.0.0.1:1", alerts: "NearsideLogSpoolGrows"},
	{name: "disk of an access log is full", before: func(w *world) { w.tmpfs("logs", "size=256k,mode=0750") },
		set: []string{`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: t/a.log}, ` +
			`{name: b, address: "127.0.0.2:0", file: t/b.log}]`, "accessLog.spool.maxSize=0"}, after: func(w *world) {
			full(w, filepath.Join(w.dir, "logs"))
			for _, r := range w.Receivers() {
				c, err := net.Dial("tcp", r.Address)
				agenttest.Do(w.t, err)
				w.t.Cleanup(func() { c.Close() })
				_, err = c.Write(append(make([]byte, 4096), '\n'))
				agenttest.Do(w.t, err)
			}
		}, check: "space", severity: warn, cause: "free space; 2 access logs on it cannot be written",
		alone: true},
	{name: "an Envoy that fails to write its log", file: shop, after: func(w *world) {
		w.admin("filesystem.write_failed: 3\nfilesystem.reopen_failed: 1\n")
		w.stream("default.web", "")
	}, check: api.ClassLostLines, severity: warn, cause: "3 writes and 1 attempts to reopen logs have failed",
		alerts: "NearsideProxyLogLinesLost"},
	{name: "a listener without a log", file: logging("{type: Tcp, tcp: {address: '127.0.0.1:1'}}"),
		before: func(w *world) {
			agenttest.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "run"), 0o750))
			agenttest.Write(w.t, filepath.Join(w.dir, "run/access"), "")
		}, after: func(w *world) {
			w.admin("listener.10.0.0.1_8080.downstream_cx_total: 2\n" +
				"listener.10.0.0.1_8080.http.localhost_8080.downstream_rq_completed: 30\n")
			w.stream("default.web", "")
		}, check: api.ClassLogGap, severity: bad, cause: "2 connections and 30 requests since then are in no log",
		alerts: "NearsideListenersWithoutLog"},
}
