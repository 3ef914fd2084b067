package problemtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

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
func (w *world) oldSpool() {
	dir := filepath.Join(w.dir, "state/spool/tcp-127.0.0.1%3A1")
	agenttest.Do(w.t, os.MkdirAll(filepath.Dir(dir), 0o750))
	synctest.Test(w.t, func(t *testing.T) {
		f, err := spool.NewForwarder(spool.ForwarderOptions{Address: "127.0.0.1:1",
			Spool: spool.Options{Dir: dir, MaxBytes: 1 << 20}})
		agenttest.Do(t, err)
		_, err = f.Write(context.Background(), []byte("line\n"))
		agenttest.Do(t, err, f.Close())
	})
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
		alert: "NearsideLogSendersRefused"},
	{name: "lines dropped on a full disk", before: func(w *world) { w.tmpfs("logs", "size=256k,mode=0750") },
		set: []string{`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: t/a.log}]`,
			"accessLog.onFull=dropNewest", "accessLog.spool.maxSize=0"}, after: func(w *world) {
			full(w, filepath.Join(w.dir, "logs"))
			_, err := w.dial().Write(make([]byte, 4096))
			agenttest.Do(w.t, err)
			_, err = w.dial().Write([]byte("one\ntwo\n"))
			agenttest.Do(w.t, err)
		}, check: api.ClassLogDropped, severity: bad, cause: "dropped (disk-full)", alert: "NearsideLogLinesDropped"},
	{name: "old lines in a spool", before: func(w *world) { w.oldSpool() }, check: api.ClassLogSpool, severity: warn,
		cause: "1 line waits for tcp 127.0.0.1:1", alert: "NearsideLogSpoolOld"},
	{name: "a listener without a log", file: with("{type: MeshAccessLog, mesh: default, name: l, spec: {targetRef: " +
		"{kind: Mesh}, from: [{targetRef: {kind: Mesh}, default: {backends: [{type: Tcp, " +
		"tcp: {address: '127.0.0.1:1'}}]}}]}}"),
		before: func(w *world) {
			agenttest.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "run"), 0o750))
			agenttest.Write(w.t, filepath.Join(w.dir, "run/access"), "")
		}, after: func(w *world) { w.stream("default.web", "") }, check: api.ClassLogGap, severity: bad,
		cause: "has had no access log since", alert: "NearsideListenersWithoutLog"},
}
