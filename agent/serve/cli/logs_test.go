package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestLogsKnowTheDefaultFormat reads lines in the format that a config uses if a policy sets none:
// the command recognizes their status and time.
func TestLogsKnowTheDefaultFormat(t *testing.T) {
	dir := t.TempDir()
	agenttest.Write(t, dir+"/r.yaml", `type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  inbound: [{port: 80, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
---
type: MeshAccessLog
mesh: default
name: all
spec:
  targetRef: {kind: Mesh}
  from:
  - targetRef: {kind: Mesh}
    default: {backends: [{type: File, file: {path: /var/log/web.log}}]}
`)
	run := func(args ...string) (string, string) {
		var out, errs bytes.Buffer
		if code := run(args, nil, &out, &errs, nil); code != command.ExitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, errs.String())
		}
		return out.String(), errs.String()
	}
	config, _ := run("inspect", "dataplane", "web", "-f", dir+"/r.yaml", "--type=config", "-o", "json")
	found := regexp.MustCompile(`"inlineString": ("(?:[^"\\]|\\.)*")`).FindStringSubmatch(config)
	if found == nil {
		t.Fatalf("no format in the config:\n%s", config)
	}
	var format string
	agenttest.Do(t, json.Unmarshal([]byte(found[1]), &format))
	values := map[string]string{"START_TIME": "2026-11-23T10:00:00.000Z", "REQ(:METHOD)": "GET", "PROTOCOL": "HTTP/2",
		"RESPONSE_CODE": "418", "RESPONSE_FLAGS": "URX,UF",
		"BYTES_RECEIVED": "0", "BYTES_SENT": "12", "DURATION": "3", "RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)": "-",
		"UPSTREAM_HOST": "[2001:db8::1]:80"}
	line := regexp.MustCompile(`%([^%]+)%`).ReplaceAllStringFunc(strings.TrimSuffix(format, "\n"), func(op string) string {
		if v, ok := values[strings.Trim(op, "%")]; ok {
			return v
		}
		return "-"
	})
	agenttest.Do(t, os.WriteFile(dir+"/web.log", []byte(line+"\n"), 0o600))
	shown, said := run("logs", "--file", dir+"/web.log", "--status", "418", "--since", "2026-11-23T10:00:00Z")
	if shown != line+"\n" || said != "" {
		t.Errorf("the line is %s\nshown is %s, and said %s", line, shown, said)
	}
}
