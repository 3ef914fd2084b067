package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// timeoutDoc returns a policy with n rules.
func timeoutDoc(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"targetRef":{"kind":"MeshService","name":"service-%d"},"default":{"idleTimeout":"20s"}},`, i)
	}
	return fmt.Sprintf(`{"type":"MeshTimeout","mesh":"default","name":%q,"spec":{"targetRef":{"kind":"Mesh"},"to":[%s]}}`,
		name, strings.TrimSuffix(b.String(), ","))
}

// put writes a policy over the API and returns the status and the ID of the event. err is a
// connection error.
func put(c *http.Client, name, doc string) (status int, id, body string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut,
		"http://x/meshes/default/meshtimeouts/"+name, strings.NewReader(doc))
	if err != nil {
		return 0, "", "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Audit-Id"), string(text), err
}

// writers write policies with several concurrent clients until stop is called or the agent is gone.
// stop returns the event IDs of acknowledged changes.
func writers(t *testing.T, d *daemon, rules int) (count *atomic.Int64, stop func() []string) {
	var mu sync.Mutex
	var ids []string
	var wg sync.WaitGroup
	count = new(atomic.Int64)
	done := make(chan struct{})
	for w := range 4 {
		wg.Go(func() {
			c := unixHTTP(d.socket())
			defer c.CloseIdleConnections()
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				name := fmt.Sprintf("t%d-%d", w, i%5)
				status, id, body, err := put(c, name, strings.Replace(timeoutDoc(name, rules), "20s", fmt.Sprintf("%ds", i+1), 1))
				if err != nil {
					return // the agent was killed
				}
				if status != http.StatusOK && status != http.StatusCreated {
					t.Errorf("%d %s", status, body)
					return
				}
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
				count.Add(1)
			}
		})
	}
	return count, func() []string {
		close(done)
		wg.Wait()
		return ids
	}
}

// auditIDs reads an audit log with "nearside logs audit" and counts the events by ID. Other output
// is an error, except for at most one incomplete line per kill of the agent.
func auditIDs(t *testing.T, file string, killed int) map[string]int {
	t.Helper()
	code, out, errs := runMain("logs", "audit", "-o", "json", "--file", file)
	torn := 0
	said, _ := strings.CutPrefix(errs, file+": lines skipped because they are not audit events: ")
	if _, err := fmt.Sscanln(said, &torn); said != "" && (err != nil || fmt.Sprintln(torn) != said) ||
		code != command.ExitOK || torn > killed {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	ids := map[string]int{}
	for line := range strings.Lines(out) {
		var e struct{ AuditID string }
		agenttest.Do(t, json.Unmarshal([]byte(line), &e))
		ids[e.AuditID]++
	}
	return ids
}

func runMain(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = Main(args, nil, &out, &errs, nil)
	return code, out.String(), errs.String()
}

// TestAuditKilledUnderLoad kills the agent while policies are written. Each acknowledged change
// must have exactly one event, and the next agent must continue the same file. A kill during a
// write may leave only an incomplete line of an unacknowledged change.
func TestAuditKilledUnderLoad(t *testing.T) {
	dir := quickTemp(t)
	write(t, dir+"/resources/mesh.yaml", "type: Mesh\nname: default\n")
	var acknowledged []string
	for round := range 3 {
		d := start(t, dir)
		count, stop := writers(t, d, 3)
		agenttest.Eventually(t, "changes are acknowledged", func() bool { return count.Load() >= 50 })
		agenttest.Do(t, d.cmd.Process.Kill())
		<-d.ended
		acknowledged = append(acknowledged, stop()...)
		ids := auditIDs(t, dir+"/logs/audit/audit.log", round+1)
		for _, id := range acknowledged {
			if ids[id] != 1 {
				t.Fatalf("round %d: %d events of the change with the id %s, which was acknowledged", round, ids[id], id)
			}
		}
	}
	d := start(t, dir)
	d.must("", "delete", "meshtimeout", "t0-0")
	agenttest.Contains(t, d.must("", "logs", "audit", "--verify"), "audit.log: intact; ")
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	verifyAudit(t, dir)
}

// verifyAudit verifies the chain of the audit log of an agent that has ended.
func verifyAudit(t *testing.T, dir string) {
	t.Helper()
	if code, out, errs := runMain("logs", "audit", "--verify", "--file", dir+"/logs/audit/audit.log", "--record",
		dir+"/state/audit-chain.json"); code != command.ExitOK {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// TestAuditRotatesUnderLoad writes policies while the audit log is rotated repeatedly. Each must
// have exactly one event in all files together.
func TestAuditRotatesUnderLoad(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/mesh.yaml", "type: Mesh\nname: default\n")
	d := start(t, dir, "auditLog.profile=WriteRequestBodies", "auditLog.maxFileSize=1", "auditLog.maxFiles=0")
	count, stop := writers(t, d, 400)
	backups := func() []string {
		found, err := filepath.Glob(dir + "/logs/audit/audit-*.log")
		agenttest.Do(t, err)
		return found
	}
	agenttest.Eventually(t, "the log is rotated", func() bool { return len(backups()) >= 4 || t.Failed() })
	acknowledged := stop()
	if n := int(count.Load()); n != len(acknowledged) {
		t.Errorf("%d of %d", len(acknowledged), n)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	verifyAudit(t, dir)
	ids := auditIDs(t, dir+"/logs/audit/audit.log", 0)
	for _, id := range acknowledged {
		if ids[id] != 1 {
			t.Errorf("%d events of the change with the id %s", ids[id], id)
		}
	}
	for _, path := range backups() {
		if st, err := os.Stat(path); err != nil || st.Size() > 1<<20 || st.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v %v, %v", path, st.Size(), st.Mode(), err)
		}
	}
}

// TestFullAuditDisk checks that on a full disk API writes are refused before anything is stored,
// while reads, files, and everything else work. All reports must show the problem. When space is
// available, pending events must be written and none may be missing.
func TestFullAuditDisk(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	remount := mountTmpfs(t, dir+"/logs/audit", "size=2m,mode=0750")
	write(t, dir+"/resources/mesh.yaml", "type: Mesh\nname: default\n")
	d := start(t, dir)
	c := unixHTTP(d.socket())
	defer c.CloseIdleConnections()
	change := func(name string, want int, says ...string) string {
		t.Helper()
		status, id, body, err := put(c, name, timeoutDoc(name, 1))
		agenttest.Do(t, err)
		if status != want {
			t.Fatalf("%s: %d %s", name, status, body)
		}
		agenttest.Contains(t, body, says...)
		return id
	}
	ids := []string{change("before", 201)}
	ballast, err := os.Create(dir + "/logs/audit/ballast")
	agenttest.Do(t, err)
	for err == nil {
		_, err = ballast.Write(make([]byte, 4096))
	}
	ballast.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	change("full", 503, "/problems/audit-log", "nothing was stored", "free space")
	if code, _, _ := d.nearside("", "get", "meshtimeout", "full"); code == command.ExitOK {
		t.Error("the change without an event was stored")
	}
	reads := 0
	for range 20 {
		if code, _, errs := d.nearside("", "get", "meshes"); code != command.ExitOK {
			t.Errorf("a read: %s", errs)
		}
		reads++
	}
	write(t, dir+"/resources/more.yaml", "type: Mesh\nname: from-file\n")
	agenttest.Eventually(t, "the file's mesh is there", func() bool {
		code, _, _ := d.nearside("", "get", "mesh", "from-file")
		return code == command.ExitOK
	})
	if _, out, _ := d.nearside("", "status"); !strings.Contains(out, "WARN audit-log: ") ||
		!strings.Contains(out, "writes over the API are refused") {
		t.Errorf("status: %s", out)
	}
	remount(0, "size=16m,mode=0750")
	agenttest.Eventually(t, "a change is taken", func() bool {
		status, id, _, err := put(c, "after", timeoutDoc("after", 1))
		agenttest.Do(t, err)
		if status == 503 {
			return false
		}
		ids = append(ids, id)
		return status == 201
	})
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	verifyAudit(t, dir)
	_, out, errs := runMain("logs", "audit", "--file", dir+"/logs/audit/audit.log")
	if n := strings.Count(out, " root list meshes 200\n"); n != reads || errs != "" {
		t.Errorf("%d of %d reads have an event: %s%s", n, reads, out, errs)
	}
	agenttest.Contains(t, out, "system:file:"+dir+"/resources/more.yaml create meshes/from-file 201", " 503 ")
	found := auditIDs(t, dir+"/logs/audit/audit.log", 0)
	for _, id := range ids {
		if found[id] != 1 {
			t.Errorf("%d events of the change with the id %s", found[id], id)
		}
	}
}

// TestLogsAudit reads the audit log of a running agent with each filter.
func TestLogsAudit(t *testing.T) {
	t.Parallel()
	dir := quickTemp(t)
	write(t, dir+"/resources/mesh.yaml", "type: Mesh\nname: default\n---\ntype: Mesh\nname: other\n")
	d := start(t, dir)
	for _, args := range [][]string{
		{"apply", "-f", "-"}, {"get", "meshtimeout", "slow"}, {"get", "meshtimeouts", "-m", "other"},
		{"get", "meshtimeout", "none"}, {"delete", "meshtimeout", "slow"},
	} {
		d.nearside(timeoutDoc("slow", 1), args...)
	}
	logs := func(args ...string) string {
		t.Helper()
		code, out, errs := d.nearside("", append([]string{"logs", "audit"}, args...)...)
		if code != command.ExitOK || errs != "" {
			t.Fatalf("%v: exit code %d: %s", args, code, errs)
		}
		return out
	}
	agenttest.Eventually(t, "all events are there", func() bool {
		return strings.Contains(logs(), " delete meshtimeouts/default/slow 200")
	})
	verbs := func(out string) string {
		var got []string
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if strings.HasPrefix(f[3], "meshtimeouts/") || f[2] == "patch" {
				got = append(got, strings.Join(f[2:5], " "))
			}
		}
		return strings.Join(got, "; ")
	}
	const all = "create meshtimeouts/default/slow 200; get meshtimeouts/default/slow 200; list meshtimeouts/other 200; " +
		"get meshtimeouts/default/none 404; delete meshtimeouts/default/slow 200"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, all},
		{[]string{"--since", "1h"}, all},
		{[]string{"--since", "2100-01-01T00:00:00Z"}, ""},
		{[]string{"-m", "other"}, "list meshtimeouts/other 200"},
		{[]string{"--status", "404"}, "get meshtimeouts/default/none 404"},
		{[]string{"--status", "4xx,500-599", "-m", "default"}, "get meshtimeouts/default/none 404"},
	} {
		if got := verbs(logs(c.args...)); got != c.want {
			t.Errorf("%v:\n got %s\nwant %s\n%s", c.args, got, c.want, logs(c.args...))
		}
	}
	for line := range strings.Lines(logs("-o", "json")) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}

// auditDoc is the page with an example of an event.
const auditDoc = "../../docs/audit.md"

// TestAuditExample checks that the event in the documentation matches an event of an agent, except
// for values that vary between runs.
func TestAuditExample(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("skipped: the example is a request of root")
	}
	dir := quickTemp(t)
	write(t, dir+"/resources/mesh.yaml", "type: Mesh\nname: default\n")
	d := start(t, dir)
	if code, _, errs := d.nearside(timeoutDoc("slow", 1), "apply", "-f", "-"); code != command.ExitOK {
		t.Fatal(errs)
	}
	_, out, _ := d.nearside("", "logs", "audit", "-o", "json")
	event := ""
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"requestURI":"/v1/apply"`) {
			event = strings.TrimSuffix(line, "\n")
		}
	}
	text, err := os.ReadFile(auditDoc)
	agenttest.Do(t, err)
	before, rest, ok := strings.Cut(string(text), "```json\n")
	example, after, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatal("the page has no example")
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		agenttest.Do(t, os.WriteFile(auditDoc, []byte(before+"```json\n"+event+"\n```"+after), 0o644))
		return
	}
	if got, want := comparable(t, event), comparable(t, example); got != want {
		t.Errorf("the agent writes\n%s\nand the page has\n%s", got, want)
	}
}

// comparable removes the values that vary between runs from an event: IDs, times, processes, and
// the groups of root.
func comparable(t *testing.T, event string) string {
	t.Helper()
	var e map[string]any
	agenttest.Do(t, json.Unmarshal([]byte(event), &e))
	if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(e["stageTimestamp"])); err != nil ||
		len(fmt.Sprint(e["auditID"])) != 36 {
		t.Errorf("%v: %s", err, event)
	}
	e["auditID"], e["requestReceivedTimestamp"], e["stageTimestamp"] = "", "", ""
	if notes, ok := e["annotations"].(map[string]any); ok {
		if len(fmt.Sprint(notes["nearside.io/previous"])) != 64 {
			t.Errorf("no hash of the previous line: %s", event)
		}
		notes["nearside.io/number"], notes["nearside.io/previous"] = "", ""
		delete(notes, "nearside.io/chain")
	}
	if user, ok := e["user"].(map[string]any); ok {
		user["groups"] = nil
		if extra, ok := user["extra"].(map[string]any); ok {
			for _, k := range []string{"nearside.io/pid", "nearside.io/gid", "nearside.io/cgroup"} {
				if _, ok := extra[k]; ok && k != "nearside.io/cgroup" {
					extra[k] = ""
				} else {
					delete(extra, k)
				}
			}
		}
	}
	b, err := json.MarshalIndent(e, "", "  ")
	agenttest.Do(t, err)
	return string(b)
}
