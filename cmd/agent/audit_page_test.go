package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// auditValue matches the parts of the output on docs/audit.md that differ between logs.
var auditValue = regexp.MustCompile(`\S*/audit[-.T0-9]*\.log:|\d{4}-\d\d-\d\dT[0-9:.]+Z|[0-9a-f]{6,}…?|\d+ files?\b|\d+`)

// TestAuditPage removes three events of an audit log, and compares the output of the verification
// with docs/audit.md, except for files, numbers, times, and hashes.
func TestAuditPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	agenttest.Do(t, err)
	all := blocks.FindAllString(string(page), -1)
	if len(all) != 1 {
		t.Fatalf("docs/audit.md has %d blocks with output, and this test runs 1", len(all))
	}
	const shown = "```console\n$ nearside logs audit --verify\n"
	want, ok := strings.CutPrefix(strings.TrimSuffix(all[0], "```"), shown)
	if !ok {
		t.Fatalf("the block of docs/audit.md does not start with %q", shown)
	}
	dir := quickTemp(t)
	write(t, dir+"/resources/mesh.yaml", "type: Mesh\nname: default\n")
	d := start(t, dir)
	for range 4 {
		d.must(slowPolicy, "apply", "-f", "-")
		d.must("", "delete", "meshtimeout", "slow")
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	path := dir + "/logs/audit/audit.log"
	text, err := os.ReadFile(path)
	agenttest.Do(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	agenttest.Do(t, os.WriteFile(path, bytes.Join(append(lines[:3:3], lines[6:]...), nil), 0o640))
	code, got, errs := runMain("logs", "audit", "--verify", "--file", path, "--record", dir+"/state/audit-chain.json")
	if code != command.ExitNo {
		t.Errorf("exit code %d: %s", code, errs)
	}
	plain := func(s string) string { return auditValue.ReplaceAllString(s, "#") }
	if plain(got) != plain(want) {
		t.Errorf("docs/audit.md shows\n%sand the command prints\n%s", want, got)
	}
}

const slowPolicy = "type: MeshTimeout\nmesh: default\nname: slow\nspec:\n  targetRef: {kind: Mesh}\n" +
	"  to: [{targetRef: {kind: Mesh}, default: {idleTimeout: 20s}}]\n"
