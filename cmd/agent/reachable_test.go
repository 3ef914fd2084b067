package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/client"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// TestReachableSuggestOfAnAgent queries an agent, and reads the log files in the proxy's config
// including rotated ones.
func TestReachableSuggestOfAnAgent(t *testing.T) {
	dir := t.TempDir()
	a := agenttest.RunAgent(t)
	socket := a.Addrs().API
	agenttest.Apply(t, a, `{type: Mesh, name: default, meshServices: {mode: Exclusive}}
---
{type: Dataplane, mesh: default, name: web, networking: {address: 192.0.2.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}], transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv4}}}
---
{type: Dataplane, mesh: default, name: db-1, networking: {address: 192.0.2.2, inbound: [{port: 5432, tags: {kuma.io/service: db}}]}}
---
{type: Dataplane, mesh: default, name: cart-1, networking: {address: 192.0.2.3, inbound: [{port: 81, tags: {kuma.io/service: cart}}]}}
---
{type: MeshAccessLog, mesh: default, name: all, spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: `+
		dir+`/web.log}}, {type: File, file: {path: `+dir+`/fifo.log}}, {type: File, file: {path: `+dir+`/gone.log}}]}}]}}
`)
	api := client.New(socket, agenttest.Patience)
	agenttest.Eventually(t, "the agent has made what was applied", func() bool {
		b, err := api.Backends(t.Context(), "default", "web")
		return err == nil && len(b.Items) == 6
	})
	const line = "[2026-11-23T10:00:0%d.000Z] - default 192.0.2.1(web)->192.0.2.2:5432(%s) took 5ms, sent 1 bytes, " +
		"received: 1 bytes\n"
	old, err := os.Create(dir + "/web-2026-11-23T10-00-05.000.log.gz")
	agenttest.Do(t, err)
	z := gzip.NewWriter(old)
	fmt.Fprintf(z, line, 1, "db")
	agenttest.Do(t, z.Close(), old.Close(), unix.Mkfifo(dir+"/fifo.log", 0o600))
	agenttest.Write(t, dir+"/web.log", fmt.Sprintf(line, 6, "cart")+fmt.Sprintf(line, 7, "cart"))
	out, errs := output(t, socket, command.ExitOK, "reachable", "suggest", "--dataplane", "web")
	want := `networking:
  transparentProxying:
    reachableBackends:
      refs:
      # 2 lines, the last at 2026-11-23T10:00:07Z
      - {kind: MeshService, name: cart, port: 81}
      # 1 line, at 2026-11-23T10:00:01Z
      - {kind: MeshService, name: db, port: 5432}
`
	if out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	agenttest.Contains(t, errs, "warning: "+dir+"/fifo.log: not a regular file",
		"warning: "+dir+"/gone.log: there is no such file", "MeshService/cart:81   2 ")
	doc, _ := output(t, socket, command.ExitNo,
		"reachable", "suggest", "--dataplane", "web", "--since", "2100-01-01T00:00:00Z", "-o", "yaml")
	agenttest.Contains(t, doc, `fragment: ""`, "old: ")
}
