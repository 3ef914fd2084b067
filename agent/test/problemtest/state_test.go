package problemtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/memory"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// full fills a file system.
func full(w *world, dir string) {
	f, err := os.Create(filepath.Join(dir, "filler"))
	agenttest.Do(w.t, err)
	defer f.Close()
	for _, err = f.Write(make([]byte, 4096)); err == nil; _, err = f.Write(make([]byte, 4096)) {
	}
}

// big returns a Mesh that needs some pages of the state file.
func big(name string) string {
	return fmt.Sprintf("{type: Mesh, name: default}\n---\n{type: MeshTimeout, mesh: default, name: %s, labels: {x: %q}, "+
		"spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}", name,
		strings.Repeat("x", 60))
}

// damage runs an agent with a policy, stops it, and changes its state file.
func (w *world) damage(change func([]byte) []byte) {
	r := agenttest.Up(w.t, w.dir, agent.Deps{})
	agenttest.ByAPI(w.t, r.Store(), big("t"))
	agenttest.Do(w.t, r.Stop())
	path := filepath.Join(w.dir, "state/nearside.db")
	text, err := os.ReadFile(path)
	agenttest.Do(w.t, err)
	changed := change(text)
	if bytes.Equal(text, changed) {
		w.t.Fatal("nothing to damage was found")
	}
	agenttest.Do(w.t, os.WriteFile(path, changed, 0o600))
}

// stateFaults are faults of disks, memory, clock, and logs.
var stateFaults = []fault{
	{name: "full state disk", before: func(w *world) { w.tmpfs("state", "size=1m,mode=0750") }, after: func(w *world) {
		full(w, filepath.Join(w.dir, "state"))
		for i := range 40 {
			w.apply(big(fmt.Sprint("t", i)))
		}
	}, check: "state", severity: bad, cause: "no space left on device", names: "100%", alone: true},
	{name: "state disk fails", before: func(w *world) {
		var fails atomic.Bool
		w.deps.Sync = func() error {
			if fails.Load() {
				return errors.New("input/output error")
			}
			return nil
		}
		w.started = func() { fails.Store(true) }
	}, after: func(w *world) { w.file("a.yaml", big("t")) }, check: "state", severity: bad, cause: "input/output error",
		alerts: "NearsideStateNotWritten"},
	{name: "little space for state", before: func(w *world) { w.tmpfs("state", "size=16m,mode=0750") }, check: "space",
		severity: warn, cause: "MiB left", names: "/state"},
	{name: "little space for logs", before: func(w *world) { w.tmpfs("logs", "size=16m,mode=0750") }, check: "space",
		severity: warn, cause: "writes to paths.logs fail soon", names: "/logs"},
	{name: "state in memory", before: func(w *world) {
		agenttest.Write(w.t, filepath.Join(w.dir, "file"), "")
		w.set = []string{"paths.state=DIR/file/state"}
	}, check: "state", severity: bad, cause: "not a directory"},
	{name: "damaged state file", before: func(w *world) {
		agenttest.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "state"), 0o750))
		agenttest.WriteSecret(w.t, filepath.Join(w.dir, "state/nearside.db"), strings.Repeat("no database", 1000))
	}, check: "state-file", severity: warn, cause: "set aside as"},
	{name: "damaged resource", before: func(w *world) {
		w.damage(func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(`"connectionTimeout":"1s"`), []byte(`"connectionTimeout":"1s!`))
		})
	}, check: "state", severity: bad, cause: "MeshTimeout/default/t"},
	{name: "memory is short", file: big("t") + "\n---\n" + agenttest.DataplaneText("default", "web", "10.0.0.1"),
		before: func(w *world) {
			w.deps.Memory = func() memory.Use { return memory.Use{Limit: 200 << 20, Live: 170 << 20, Mapped: 200 << 20} }
		}, after: func(w *world) { w.stream("default.web", "") }, check: "memory", severity: warn,
		cause:  "1 proxy is refused",
		alerts: "NearsideMemoryShort"},
	{name: "memory limit is too small", before: func(w *world) {
		w.deps.Memory = func() memory.Use {
			return memory.Use{Limit: 36 << 20, Live: 11 << 20, Mapped: 20 << 20, Group: 40 << 20}
		}
	}, check: "memory", severity: warn, cause: "memory limit of 40 MiB is below the smallest that works, 48 MiB"},
	{name: "no proxy asks while memory is short", before: func(w *world) {
		w.deps.Memory = func() memory.Use { return memory.Use{Limit: 8 << 20, Live: 11 << 20, Mapped: 20 << 20} }
	}, check: "memory", severity: warn, cause: "11 MiB in use of 8 MiB"},
	{name: "clock was never set", before: func(w *world) {
		w.deps.Now = func() time.Time { return time.Unix(1000, 0) }
	}, check: "clock", severity: bad, cause: "the time is 1970"},
	{name: "clock was set back", before: func(w *world) {
		var by atomic.Int64
		w.deps.Now = func() time.Time { return time.Now().Add(time.Duration(by.Load())) }
		w.started = func() { by.Store(-int64(time.Hour)) }
	}, check: "clock", severity: warn, cause: "the clock was set back"},
	{name: "log file fails", before: func(w *world) {
		agenttest.Write(w.t, filepath.Join(w.dir, "file"), "")
		cfg, _, faults := config.Load(agenttest.Options(w.dir, "log.file="+w.dir+"/file/agent.log"))
		if faults != nil {
			w.t.Fatal(faults)
		}
		w.deps.LogFile = agent.OpenLogFile(cfg)
		w.t.Cleanup(func() { _ = w.deps.LogFile.Close() })
	}, check: "log-file", severity: warn, cause: "log.file"},
	{name: "audit log was changed", file: "{type: Mesh, name: default}", set: []string{"auditLog.profile=Default"},
		after: func(w *world) {
			agenttest.Do(w.t, os.Remove(filepath.Join(w.dir, "logs/audit/audit.log")))
			_, _ = w.Request("GET", "http://nearside/v1/status", "")
		}, check: "audit-log", severity: warn, cause: "another process", alerts: "NearsideAuditFileChanged"},
	{name: "audit log was cut", set: []string{"auditLog.profile=Default"}, before: func(w *world) {
		agenttest.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "state"), 0o700))
		agenttest.Write(w.t, filepath.Join(w.dir, "state/audit-chain.json"), `{"path": "`+
			filepath.Join(w.dir, "logs/audit/audit.log")+`", "first": 1, "last": {"number": 9, "hash": "`+
			strings.Repeat("a", 64)+`"}}`)
	}, check: "audit-log", severity: warn, cause: "the end of the audit log differs from the agent's record",
		alerts: "NearsideAuditChainBroken"},
	{name: "audit log disk is full", before: func(w *world) { w.tmpfs("logs", "size=256k,mode=0750") },
		after: func(w *world) {
			full(w, filepath.Join(w.dir, "logs"))
			for range 200 {
				_, _ = w.Request("PUT", "http://nearside/meshes/"+strings.Repeat("x", 60), `{"type": "Mesh", "name": "`+
					strings.Repeat("x", 60)+`"}`, "Content-Type: application/json")
			}
		}, check: "space", severity: warn, cause: "no space left on device", alone: true,
		alerts: "NearsideAuditWritesRefused"},
	{name: "damaged list of revoked tokens", before: func(w *world) {
		dir := filepath.Join(w.dir, "state/tokens")
		agenttest.Do(w.t, os.MkdirAll(dir, 0o700))
		agenttest.WriteSecret(w.t, filepath.Join(dir, "revoked"), "nothing\n")
	}, check: "tokens", severity: warn, cause: "revoked"},
	{name: "port of a receiver in use", before: func(w *world) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		agenttest.Do(w.t, err)
		w.t.Cleanup(func() { l.Close() })
		w.set = []string{fmt.Sprintf(`accessLog.receivers=[{name: a, address: %q, file: a.log}]`, l.Addr())}
	}, check: "access-logs", severity: warn, cause: "another process listens on"},
	{name: "port of the metrics in use", before: func(w *world) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		agenttest.Do(w.t, err)
		w.t.Cleanup(func() { l.Close() })
		token := filepath.Join(w.dir, "token")
		agenttest.WriteSecret(w.t, token, "0123456789abcdef0123")
		w.set = []string{"metrics.listen=" + l.Addr().String(), "metrics.tokenFile=" + token}
	}, check: "listeners", severity: bad, cause: "metrics.listen: another process listens on"},
	{name: "log directory is a file", before: func(w *world) {
		agenttest.Do(w.t, os.MkdirAll(filepath.Join(w.dir, "logs"), 0o750))
		agenttest.Write(w.t, filepath.Join(w.dir, "logs/t"), "")
		w.set = []string{`accessLog.receivers=[{name: a, address: "127.0.0.1:0", file: t/a.log}]`}
	}, check: "access-logs", severity: warn, cause: "not a directory"},
}
