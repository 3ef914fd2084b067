package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/token"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestLogPathsOfTheAgent checks that a role that may write only log backends cannot name the audit
// log, its backups, or other files of the agent: for the agent as the writer, and for an Envoy.
// Links and other spellings do not help. Names of backups are invalid, and other paths give no
// logger.
func TestLogPathsOfTheAgent(t *testing.T) {
	dir := openDir(t)
	bearer := newToken(t, dir, token.Claims{Subject: "ci", Audience: token.AudienceAPI})
	r := agenttest.Up(t, dir, agent.Deps{}, "api.tcp=127.0.0.1:0", "log.file=agent.log", `api.roles=[{name: logger, `+
		`subjects: [{token: ci}], allow: [{kinds: [MeshAccessLogBackend], verbs: ["*"], features: [log-path]}]}]`)
	agenttest.ByAPI(t, r.Store(), "type: Mesh\nname: default\n---\n"+
		agenttest.DataplaneText("default", "web", "10.0.0.1")+`---
type: MeshAccessLog
mesh: default
name: all
spec:
  from: [{targetRef: {kind: Mesh}, default: {backends: [{type: reference, conf: {kind: MeshAccessLogBackend, name: b}}]}}]
`)
	r.Ask(&core.Node{Id: "default.web"}, nil)
	logs := filepath.Join(dir, "logs")
	agenttest.Do(t, os.MkdirAll(filepath.Join(logs, "audit"), 0o750))
	put := func(path, rotation string) (int, string) {
		t.Helper()
		return r.Request("PUT", "http://"+r.Addrs().APITCP.String()+"/meshes/default/meshaccesslogbackends/b",
			fmt.Sprintf(`{"type":"MeshAccessLogBackend","mesh":"default","name":"b","spec":{"name":"b","type":"file",`+
				`"conf":{"path":%q%s}}}`, path, rotation), "Authorization: Bearer "+bearer, "Content-Type: application/json")
	}
	// config returns the config of the proxy once it has a logger, or none.
	config := func(logged bool) string {
		t.Helper()
		for begun := time.Now(); ; <-time.After(time.Millisecond) {
			_, text := r.Request("GET", "http://nearside/meshes/default/dataplanes/web/_config", "")
			if strings.Contains(text, "FileAccessLog") == logged {
				return text
			} else if time.Since(begun) > agenttest.Patience {
				t.Fatalf("the proxy has a logger: %v", !logged)
			}
		}
	}
	for path, want := range map[string]string{ // the fault of the resource, or the reason of the dropped backend
		logs + "/access/web.log":                                  "",
		logs + "/audit/audit-2099-01-01T00-00-00.000.log":         "has the name of a backup of audit.log",
		logs + "/audit/audit-2099-01-01T00-00-00.000.log.gz":      "has the name of a backup of audit.log",
		logs + "/audit/.audit-2099-01-01T00-00-00.000.log.gz.tmp": "has the name of a temporary file of",
		logs + "/audit/.audit.log.lock":                           "has the name of a lock file of audit.log",
		"/proc/self/root" + logs + "/audit/audit.log":             "is below a directory of the kernel",
		logs + "/audit/audit.log":                                 "contains the audit log",
		logs + "/access/../audit/other.log":                       "contains the audit log",
		logs + "/dns/queries.log":                                 "contains the logs of DNS queries",
		logs + "/agent.log":                                       "belongs to the log of the agent",
		dir + "/state/spool/x":                                    "contains the state of the agent",
		dir + "/run/access/nearside-x.fifo":                       "contains the sockets and FIFOs",
		dir + "/resources/mesh.yaml":                              "contains resource files",
	} {
		for _, rotation := range []string{"", `,"rotation":{"maxFiles":1}`, `,"rotation":"none"`} {
			put(logs+"/access/web.log", "")
			config(true)
			code, answer := put(path, rotation)
			invalid := code == 400
			if code != 200 && code != 201 && !invalid || !strings.Contains(answer, want) {
				t.Errorf("%s%s: %d %s, want %q", path, rotation, code, answer, want)
			}
			if text := config(invalid || want == ""); want != "" && strings.Contains(text, path) {
				t.Errorf("%s%s is in the config", path, rotation)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(logs, "audit", "*"))
	agenttest.Do(t, err)
	text, err := os.ReadFile(filepath.Join(logs, "audit", "audit.log"))
	agenttest.Do(t, err)
	text = text[:bytes.LastIndexByte(text, '\n')] // events of reads are still being written
	events := strings.Split(string(text), "\n")
	for _, line := range events {
		var e struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != "Event" {
			t.Errorf("the audit log has the line %q: %v", line, err)
		}
	}
	lock := filepath.Join(logs, "audit", ".audit.log.lock")
	if len(files) != 2 || files[0] != lock || len(events) < 30 {
		t.Errorf("the audit log has %d events, and the files %v", len(events), files)
	}
}

// TestLogPathWarnedOnce checks that the status lists each warning about a log file once, without a
// connected proxy.
func TestLogPathWarnedOnce(t *testing.T) {
	dir := openDir(t)
	r := agenttest.Up(t, dir, agent.Deps{})
	agenttest.ByAPI(t, r.Store(), "type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "10.0.0.1")+
		"\n---\n"+agenttest.DataplaneText("default", "idle", "10.0.0.2")+"\n---\n{type: MeshAccessLog, mesh: default, "+
		"name: own, spec: {from: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: "+dir+
		"/logs/audit/audit.log}}, {type: File, file: {path: /tmp/elsewhere.log}}]}}]}}")
	times := map[string]int{}
	agenttest.Eventually(t, "the policy has warnings", func() bool {
		s, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		clear(times)
		for _, p := range s.Problems {
			if p.Resource == "MeshAccessLog/default/own" {
				times[p.Reason]++
			}
		}
		return len(times) > 1
	})
	for reason, n := range times {
		if n > 1 {
			t.Errorf("%d times: %s", n, reason)
		}
	}
}
