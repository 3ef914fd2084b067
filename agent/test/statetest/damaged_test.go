package statetest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// another is a second mesh of the node, in a file.
const another = `type: Mesh
name: other
---
type: Dataplane
mesh: other
name: shop
networking: {address: 10.0.0.2, inbound: [{port: 80, tags: {kuma.io/service: shop}}]}
`

// TestDamagedPolicy starts an agent whose record of a denying permission is damaged, like its
// history. The proxies of the mesh keep their config until the permission is written or deleted.
func TestDamagedPolicy(t *testing.T) {
	w := newWorld(t)
	for _, end := range []string{"apply", "delete"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			dir := w.copyOf(t)
			agenttest.Write(t, filepath.Join(dir, "resources", "other.yaml"), another)
			path := filepath.Join(dir, "state", "nearside.db")
			content, err := os.ReadFile(path)
			agenttest.Do(t, err)
			if !bytes.Contains(content, []byte(`"action":"Deny"`)) {
				t.Fatal("the state has no permission")
			}
			agenttest.Do(t, os.WriteFile(path, bytes.ReplaceAll(content, []byte(`"action":"Deny"`),
				[]byte(`"action":"Dexy"`)), 0o600))
			r := start(t, dir)
			stream := r.ask(t, w.versions)
			received := make(chan string, 1)
			go func() { m, err := stream.Recv(); received <- fmt.Sprint(m, err) }()
			tick := time.NewTicker(time.Millisecond) // there is no event for a request of an Envoy
			defer tick.Stop()
			agenttest.Await(t, "the proxy keeps its config", tick.C, func() bool {
				p, err := r.api.Proxy(t.Context(), "default", "web")
				return err == nil && p.State == "stale" && strings.Contains(p.Reason, "MeshTrafficPermission/default/guard")
			})

			s, problems := r.status(t)
			remedy := "nearside delete MeshTrafficPermission guard -m default"
			if s.Ready || !strings.Contains(problems, "error damaged MeshTrafficPermission/default/guard: ") ||
				!strings.Contains(problems, "the proxies of mesh default keep their config: "+
					"write it again with nearside apply -f FILE") ||
				!strings.Contains(problems, remedy) || strings.Contains(problems, "Mesh/other") {
				t.Errorf("ready %v, problems:\n%s", s.Ready, problems)
			}
			timeout := strings.ReplaceAll(strings.Split(documents, "---\n")[1], "7s", "8s")
			out, err := r.api.Apply(t.Context(), []byte(timeout), false)
			if err != nil || !strings.Contains(strings.Join(out.Warnings, "\n"), "proxies do not get the change yet: ") {
				t.Errorf("a write of another policy: %v, %v", out, err)
			}
			agenttest.Await(t, "a pass over the write", tick.C, func() bool {
				return r.Last().Revision >= out.Changes[0].Revision
			})
			if _, err := r.api.Config(t.Context(), "default", "web", render.ConfigOptions{}); err == nil ||
				!strings.Contains(err.Error(), remedy) {
				t.Errorf("config: %v", err)
			}
			if _, err := r.api.Config(t.Context(), "other", "shop", render.ConfigOptions{}); err != nil {
				t.Errorf("the config of another mesh: %v", err)
			}
			for name, want := range map[string]string{
				"web.mesh.": "SERVFAIL", "gone.mesh.": "SERVFAIL", "shop.mesh.": "NOERROR",
			} {
				r.resolves(t, name, want)
			}
			select {
			case m := <-received:
				t.Fatalf("the Envoy has received %s", m)
			default:
			}

			if end == "apply" {
				_, err = r.api.Apply(t.Context(), []byte(documents), false)
			} else {
				_, err = r.api.Delete(t.Context(), "meshtrafficpermissions", "default", "guard", false)
			}
			agenttest.Do(t, err)
			agenttest.Await(t, "the mesh is derived", tick.C, func() bool { return r.Last().Meshes["default"] != nil })
			if names := agenttest.Next(t, r.ask(t, nil), map[string]string{}); !strings.Contains(names, "db") {
				t.Errorf("an Envoy without config gets %s", names)
			}
			if got := r.config(t); end == "apply" && got != w.config {
				t.Errorf("config %s\nwant %s", got, w.config)
			} else if end == "delete" && !strings.Contains(got, "8s") {
				t.Errorf("config without the later write: %s", got)
			}
			if s, problems := r.status(t); !s.Ready || strings.Contains(problems, "damaged") {
				t.Errorf("after the %s: ready %v, problems:\n%s", end, s.Ready, problems)
			}
			r.resolves(t, "gone.mesh.", "NXDOMAIN")
		})
	}
}
