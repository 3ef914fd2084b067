package agent_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// modification returns a MeshProxyPatch with one modification of a kind, the last field of which is
// value, a YAML text.
func modification(name, kind, head, value string) string {
	return fmt.Sprintf("{type: MeshProxyPatch, mesh: default, name: %s, spec: {targetRef: {kind: Mesh}, default: "+
		"{appendModifications: [{%s: {%s, value: %q}}]}}}\n---\n", name, kind, head, value)
}

// httpFilterOf returns the text of an HTTP filter.
func httpFilterOf(name, typ, config string) string {
	return "name: envoy.filters.http." + name + "\ntypedConfig:\n  '@type': type.googleapis.com/" + typ + "\n" + config
}

// TestFirstConfigRejected checks policies that make a real Envoy reject resources of the first
// config that it gets, or that the check withholds. All requests must pass from the start, other
// policies of the same resources must be in force, and the reports must name both versions. A fixed
// policy must be in force, also on the same Envoy.
func TestFirstConfigRejected(t *testing.T) {
	envoytest.Find(t)
	lua := func(code string) string {
		return httpFilterOf("lua", "envoy.extensions.filters.http.lua.v3.Lua", "  inlineCode: '"+code+"'\n")
	}
	for name, x := range map[string]struct {
		bad, good []string // policies; good is applied later, if it is not empty
		file      bool     // instead of good, the file is created
		bound     string   // in responses of the fixed config: a header
		kept      bool     // no version without the policy is sent
	}{
		"an inbound filter": {
			bad: []string{modification("bad", "httpFilter", "operation: AddFirst, match: {origin: inbound}",
				lua("function ("))},
			good: []string{modification("bad", "httpFilter", "operation: AddFirst, match: {origin: inbound}",
				lua("function envoy_on_response(h) h:headers():add(\"fixed\", \"1\") end"))},
			bound: "fixed",
		},
		"a missing file": {
			bad: []string{modification("bad", "httpFilter", "operation: AddFirst, match: {origin: outbound}",
				httpFilterOf("lua", "envoy.extensions.filters.http.lua.v3.Lua", "  defaultSourceCode: {filename: SCRIPT}\n"))},
			file: true, bound: "file",
		},
		"two policies of one listener": {
			bad: []string{modification("bad", "httpFilter", "operation: AddFirst, match: {origin: inbound}", lua("function (")),
				modification("worse", "httpFilter", "operation: AddFirst, match: {origin: inbound}", lua("end end"))},
		},
		"a cluster": {
			bad: []string{modification("bad", "cluster", "operation: Patch, match: {name: web}", "connectTimeout: 9223372037s")},
		},
		"a listener with an address that the host does not have": {
			bad: []string{modification("bad", "listener", "operation: Patch, match: {origin: outbound}",
				"address: {socketAddress: {address: 192.0.2.1, portValue: 80}}")},
		},
		"a filter that restricts access": {
			bad: []string{modification("bad", "httpFilter", "operation: AddFirst, match: {origin: inbound}",
				httpFilterOf("jwt_authn", "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
					"  providers: {p: {localJwks: {inlineString: nonsense}}}\n"+
						"  rules: [{match: {prefix: /}, requires: {providerName: p}}]\n"))},
			kept: true,
		},
	} {
		for _, checked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, checked=%t", name, checked), func(t *testing.T) {
				t.Parallel()
				script := filepath.Join(agenttest.ShortDir(t), "script.lua")
				deps := agent.Deps{}
				if !checked {
					deps.Check = func(*generate.Proxy, *check.Checker, *draft.Sealed) []finding.Finding { return nil }
				}
				r := agenttest.Up(t, agenttest.ShortDir(t), deps)
				in, out, workload := freePort(t), freePort(t), serveText(t, nil, "ok")
				agenttest.Apply(t, r.Agent, fmt.Sprintf("{type: Mesh, name: default}\n---\n{type: Dataplane, mesh: default, "+
					"name: web, networking: {address: 127.0.0.2, inbound: [{port: %d, servicePort: %d, serviceAddress: 127.0.0.1, "+
					"tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: %d, tags: {kuma.io/service: web}}]}}\n"+
					"---\n{type: MeshAccessLog, mesh: default, name: log, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: "+
					"Mesh}, default: {backends: [{type: File, file: {path: /dev/null, format: {type: Plain, "+
					"plain: seen}}}]}}]}}\n---\n%s",
					in, workload, out, strings.ReplaceAll(strings.Join(x.bad, ""), "SCRIPT", script)))
				startEnvoy(t, r.Agent, "web")
				get := func(host string, port int) (int, http.Header) {
					resp, err := http.Get(fmt.Sprintf("http://%s:%d/", host, port))
					if err != nil {
						return 0, nil
					}
					defer resp.Body.Close()
					io.Copy(io.Discard, resp.Body)
					return resp.StatusCode, resp.Header
				}
				if x.kept {
					got := waitFor(t, r, "meshproxypatch", "bad")
					if got.State != api.StateRejected || len(got.Rejected[0].Without) > 0 {
						t.Errorf("wait: %+v", got)
					}
					if status, _ := get("127.0.0.2", in); status != 0 {
						t.Errorf("the inbound answers %d without the filter", status)
					}
					agenttest.Eventually(t, "the status has the problem", func() bool {
						s, err := r.Api().Status(t.Context())
						return err == nil && slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
							return p.Resource == "MeshProxyPatch/default/bad" && strings.Contains(p.Reason, "which restricts access")
						})
					})
					return
				}
				agenttest.Eventually(t, "requests pass", func() bool {
					a, _ := get("127.0.0.1", out)
					b, _ := get("127.0.0.2", in)
					return a == 200 && b == 200
				})
				got := waitFor(t, r, "meshproxypatch", "bad")
				if got.State != api.StateRejected || len(got.Rejected[0].Without) != len(x.bad) ||
					got.Rejected[0].Without[0].Name != "bad" && len(x.bad) == 1 {
					t.Errorf("wait: %+v", got)
				}
				if got := waitFor(t, r, "meshaccesslog", "log"); got.State != api.StateApplied {
					t.Errorf("another policy: %+v", got)
				}
				s, err := r.Api().Status(t.Context())
				agenttest.Do(t, err)
				if !slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
					return p.Resource == "MeshProxyPatch/default/bad" &&
						strings.Contains(p.Reason, "; Envoy gets the version without MeshProxyPatch/default/")
				}) {
					t.Errorf("problems: %+v", s.Problems)
				}
				if x.bound == "" {
					return
				}
				if x.file {
					agenttest.Do(t,
						os.WriteFile(script, []byte("function envoy_on_response(h) h:headers():add('file', '1') end"), 0o644))
				}
				agenttest.Apply(t, r.Agent, strings.Join(x.good, ""))
				agenttest.Eventually(t, "the fixed policy is in force", func() bool {
					_, h := get("127.0.0.1", out)
					return h.Get(x.bound) != ""
				})
				if got := waitFor(t, r, "meshproxypatch", "bad"); got.State != api.StateApplied {
					t.Errorf("fixed: %+v", got)
				}
			})
		}
	}
}
