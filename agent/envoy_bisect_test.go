package agent_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// active returns the active clusters and listeners of Envoy by name as JSON. The value is "" for a
// resource that Envoy does not have.
func active(t *testing.T, e *envoytest.Process) map[string]string {
	t.Helper()
	var dump struct {
		Configs []struct {
			Clusters []struct {
				Cluster json.RawMessage `json:"cluster"`
			} `json:"dynamic_active_clusters"`
			Listeners []struct {
				Name  string `json:"name"`
				State struct {
					Listener json.RawMessage `json:"listener"`
				} `json:"active_state"`
			} `json:"dynamic_listeners"`
		} `json:"configs"`
	}
	if _, body := e.Admin("/config_dump"); json.Unmarshal([]byte(body), &dump) != nil {
		t.Fatalf("config_dump is no JSON: %s", body)
	}
	out := map[string]string{}
	for _, c := range dump.Configs {
		for _, x := range c.Clusters {
			var named struct{ Name string }
			agenttest.Do(t, json.Unmarshal(x.Cluster, &named))
			out[named.Name] = string(x.Cluster)
		}
		for _, x := range c.Listeners {
			out[x.Name] = string(x.State.Listener)
		}
	}
	return out
}

// envoyBelow reports whether an Envoy is older than a version.
func envoyBelow(t *testing.T, path string, major, minor uint32) bool {
	t.Helper()
	out, err := exec.Command(path, "--version").Output()
	agenttest.Do(t, err)
	_, version, _ := strings.Cut(string(out), " version: ") // COMMIT/1.36.2/Clean/RELEASE/BoringSSL
	parts := append(strings.Split(version, "/"), "")
	if !finding.ParseVersion(parts[1]).Known() {
		t.Fatalf("no version in %q", out)
	}
	return finding.ParseVersion(parts[1]).Below(major, minor)
}

// TestWholeUpdateRejected checks the case that a real Envoy rejects an update as a whole without
// naming a resource. All resources must arrive without the effect of the invalid policy, including
// later changes and services, and only that policy is reported as the cause. All this must also
// hold after a restart of agent and Envoy.
func TestWholeUpdateRejected(t *testing.T) {
	path := envoytest.Find(t)
	for name, x := range map[string]struct {
		patch   string
		bad     string // invalid value for redis
		noCheck bool
		known   [2]uint32 // first Envoy version that accepts the value; zero if none does
	}{
		"a cluster, of which the check says nothing": {patch: "{cluster: {operation: Patch, match: {name: redis}, " +
			"value: 'connectTimeout: 9223372037s'}}", bad: "redis", noCheck: true},
		"a listener with a field of a newer Envoy": {patch: "{listener: {operation: Patch, " +
			"match: {name: 'outbound:127.0.0.1:%d'}, value: 'connectionBalanceConfig: {cpuLocalityBalance: {}}'}}",
			bad: "outbound", known: [2]uint32{1, 39}},
	} {
		t.Run(name, func(t *testing.T) {
			if x.known != [2]uint32{} && !envoyBelow(t, path, x.known[0], x.known[1]) {
				t.Skipf("%s is of version %d.%d or newer, which takes this", path, x.known[0], x.known[1])
			}
			var deps agent.Deps
			if x.noCheck {
				deps.Check = func(*generate.Proxy, *check.Checker, *draft.Sealed) []finding.Finding { return nil }
			}
			dir := agenttest.ShortDir(t)
			r := agenttest.Up(t, dir, deps)
			ports, used := map[string]int{}, map[int]bool{}
			for _, name := range []string{"web", "backend", "redis", "new"} {
				for ports[name] == 0 || used[ports[name]] {
					ports[name] = freePort(t)
				}
				used[ports[name]] = true
			}
			listener := func(service string) string { return fmt.Sprintf("outbound:127.0.0.1:%d", ports[service]) }
			web := func(services ...string) string {
				var outbounds []string
				for _, s := range services {
					outbounds = append(outbounds, fmt.Sprintf("{port: %d, tags: {kuma.io/service: %s}}", ports[s], s))
				}
				return fmt.Sprintf("{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, "+
					"inbound: [{port: %d, tags: {kuma.io/service: web}}], outbound: [%s]}}\n---\n",
					ports["web"], strings.Join(outbounds, ", "))
			}
			docs := "{type: Mesh, name: default}\n---\n" + web("backend", "redis")
			for _, service := range []string{"backend", "redis", "new"} {
				docs += fmt.Sprintf("{type: Dataplane, mesh: default, name: %s, networking: {address: 127.0.0.3, "+
					"inbound: [{port: 1, tags: {kuma.io/service: %[1]s}}]}}\n---\n", service)
			}
			agenttest.Apply(t, r.Agent, docs)
			envoy := startEnvoy(t, r.Agent, "web")

			var now map[string]string
			until := func(what string, cond func() bool) {
				t.Helper()
				agenttest.Eventually(t, what, func() bool { now = active(t, envoy); return cond() })
			}
			bad := x.bad
			if bad == "outbound" {
				bad = listener("redis")
			}
			until("Envoy has the services", func() bool {
				return now["backend"] != "" && now[listener("backend")] != "" && now[bad] != ""
			})

			// One update contains the invalid version of redis and new versions of all others.
			limits := func(n int) string {
				return fmt.Sprintf("{type: MeshCircuitBreaker, mesh: default, name: limits, spec: {targetRef: {kind: Mesh}, "+
					"to: [{targetRef: {kind: Mesh}, default: {connectionLimits: {maxConnections: %d}}}]}}\n---\n"+
					"{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, "+
					"to: [{targetRef: {kind: Mesh}, default: {backends: [{type: File, file: {path: /dev/null, "+
					"format: {type: Plain, plain: 'at %[1]d'}}}]}}]}}\n---\n", n)
			}
			patch := x.patch
			if strings.Contains(patch, "%d") {
				patch = fmt.Sprintf(patch, ports["redis"])
			}
			agenttest.Apply(t, r.Agent, limits(71)+fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: bad, "+
				"spec: {targetRef: {kind: Mesh}, default: {appendModifications: [%s]}}}\n", patch))
			arrived := func(n int, services ...string) func() bool {
				return func() bool {
					for _, s := range services {
						if !strings.Contains(now[s], fmt.Sprintf(`"max_connections": %d`, n)) ||
							!strings.Contains(now[listener(s)], fmt.Sprintf("at %d", n)) {
							return false
						}
					}
					return true
				}
			}
			lacks := func() {
				t.Helper()
				for _, s := range []string{"9223372037s", "cpu_locality_balance"} {
					if strings.Contains(now[bad], s) {
						t.Errorf("Envoy has %s: %s", s, now[bad])
					}
				}
			}
			blamed := func() {
				t.Helper()
				got := waitFor(t, r, "meshproxypatch", "bad")
				if got.State != api.StateRejected || got.RejectedTotal != 1 || got.Rejected[0].Resource != bad ||
					len(got.Rejected[0].Without) != 1 || got.Rejected[0].Without[0].Name != "bad" {
					t.Errorf("the bad policy: %+v", got)
				}
				if good := waitFor(t, r, "meshaccesslog", "log"); good.State != api.StateApplied {
					t.Errorf("a good policy: %+v", good)
				}
			}
			until("the update without the bad policy", arrived(71, "backend", "redis"))
			lacks()
			blamed()

			agenttest.Apply(t, r.Agent, limits(72)+web("backend", "redis", "new"))
			until("a later change and a new service", arrived(72, "backend", "redis", "new"))
			lacks()

			envoy.Stop()
			agenttest.Do(t, r.Stop())
			r = agenttest.Up(t, dir, deps)
			envoy = startEnvoy(t, r.Agent, "web")
			until("all without the bad policy, after a restart", arrived(72, "backend", "redis", "new"))
			lacks()
			blamed()

			agenttest.Remove(t, r.Agent, resource.Key{Kind: "MeshProxyPatch", Mesh: "default", Name: "bad"})
			bad = ""
			until("all, without the policy", arrived(72, "backend", "redis", "new"))
		})
	}
}
