package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/resources"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
	"github.com/nearside-mesh/nearside/agent/test/secrettest"
)

// odd contains resources that cause each warning about resources in the code.
var odd = map[string]string{
	"mesh.yaml": `
{type: Mesh, name: empty}
---
{type: Mesh, name: plain}
---
# a MeshService that is derived from tags, of dataplanes whose ports differ
{type: Mesh, name: derived, meshServices: {mode: Everywhere}}
---
{type: Dataplane, mesh: derived, name: d-1, networking: {address: 10.0.2.1, inbound: [{port: 80, tags: {kuma.io/service: both}}]}}
---
{type: Dataplane, mesh: derived, name: d-2, networking: {address: 10.0.2.2, inbound: [{port: 81, tags: {kuma.io/service: both}}]}}
---
# a mesh without dataplanes: a policy about nothing
{type: MeshTimeout, mesh: empty, name: nobody, spec: {targetRef: {kind: MeshService, name: nobody}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 1s}}]}}
`,
	"dataplanes.yaml": `
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  outbound:
  - {port: 20001, tags: {kuma.io/service: db}}
  - {port: 20002, backendRef: {kind: MeshService, name: nobody, port: 80}}
probes: {port: 9000, endpoints: [{inboundPort: 8080, inboundPath: /, path: /8080}]}
---
type: Dataplane
mesh: default
name: client
networking:
  address: 10.0.0.2
  inbound: [{port: 8080, tags: {kuma.io/service: client, kuma.io/protocol: tcp}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, reachableBackends: {refs: [{kind: MeshService, name: nobody}]}}
---
{type: Dataplane, mesh: plain, name: one, networking: {address: 10.0.1.1, inbound: [{port: 8080, tags: {kuma.io/service: one, kuma.io/protocol: http}}], outbound: [{port: 20001, tags: {kuma.io/service: two}}]}}
---
{type: Dataplane, mesh: plain, name: two, networking: {address: 10.0.1.2, inbound: [{port: 8080, tags: {kuma.io/service: two, kuma.io/protocol: http}}]}}
`,
	"services.yaml": `
{type: MeshService, mesh: default, name: hollow, labels: {kuma.io/service: hollow}, spec: {selector: {dataplaneTags: {kuma.io/service: nobody-here}}, ports: [{port: 80, targetPort: 80}]}}
---
{type: MeshExternalService, mesh: default, name: outside, spec: {match: {type: HostnameGenerator, port: 443, protocol: tcp}, endpoints: [{address: db.example.com, port: 443}], tls: {enabled: true, verification: {mode: SkipCA}}}}
---
{type: HostnameGenerator, name: a, spec: {selector: {meshService: {matchLabels: {kuma.io/service: hollow}}}, template: "same.mesh"}}
---
{type: HostnameGenerator, name: b, spec: {selector: {meshExternalService: {}}, template: "same.mesh"}}
---
{type: ZoneEgress, name: egress, networking: {address: 10.0.0.9, port: 10002}}
`,
	"policies.yaml": `
{type: MeshMetric, mesh: default, name: apps, spec: {targetRef: {kind: Mesh}, default: {applications: [{name: x, port: 80}], backends: [{type: Prometheus, prometheus: {port: 5670, tls: {mode: ActiveMTLSBackend}}}]}}}
---
{type: MeshTimeout, mesh: default, name: lost, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: nobody}, default: {connectionTimeout: 1s}}]}}
---
{type: MeshAccessLog, mesh: plain, name: by-client, spec: {targetRef: {kind: Mesh}, from: [{targetRef: {kind: MeshSubset, tags: {kuma.io/service: two}}, default: {backends: [{type: File, file: {path: /tmp/x.log}}]}}]}}
---
{type: MeshHTTPRoute, mesh: plain, name: nowhere, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: two}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: nobody, weight: 1}]}}]}]}}
---
# found by the check, on two proxies
type: MeshProxyPatch
mesh: plain
name: twice
spec:
  targetRef: {kind: Mesh}
  default:
    appendModifications:
    - networkFilter:
        operation: AddFirst
        match: {origin: inbound}
        value: |
          name: envoy.filters.network.rbac
          typedConfig: {"@type": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC, statPrefix: x}
`,
}

// normalized returns a comparable form of a warning, so that warnings of documents can be compared
// with those of status and check. Warnings of the check are compared only by text, because one
// command names the policy as the cause and the other the proxy.
func normalized(resource, reason string) string {
	if i := strings.Index(reason, " (rule "); i >= 0 {
		reason = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`).ReplaceAllString(reason[:i], "IP")
		return reason
	}
	return resource + ": " + reason
}

// allWarnings returns the warnings of validate, status, and check.
func allWarnings(t *testing.T, socket, dir string) map[string]map[string]bool {
	t.Helper()
	var v resources.Validation
	var s api.Status
	var c struct {
		Checks []struct{ Name, State, Reason, Hint string }
	}
	for _, x := range []struct {
		to   any
		args []string
	}{
		{&v, []string{"validate", "-f", dir, "-o", "json"}}, {&s, []string{"status", "-o", "json"}},
		{&c, []string{"check", "-o", "json"}},
	} {
		var printed, errs bytes.Buffer
		if code := Main(append(x.args, "--socket", socket), nil, &printed, &errs, nil); code != command.ExitOK {
			t.Fatalf("%v: exit code %d: %s%s", x.args, code, printed.String(), errs.String())
		}
		out := printed.String()
		if err := json.Unmarshal([]byte(out), x.to); err != nil {
			t.Fatal(err)
		}
	}
	if s.Unchecked > 0 {
		t.Errorf("%d proxies were not looked at", s.Unchecked)
	}
	by := map[string]map[string]bool{"validate": {}, "status": {}, "check": {}}
	for _, w := range v.Warnings {
		by["validate"][normalized(cmp.Or(w.Resource, w.File), w.Reason)] = true
	}
	for _, p := range s.Problems {
		switch p.Check {
		case api.ClassResource, api.ClassNoEffect:
			by["status"][normalized(p.Resource, p.Reason)] = true
		case api.ClassFileExposed:
			path, reason, _ := strings.Cut(p.Reason, " ")
			by["status"][normalized(path, reason)] = true
		}
	}
	for _, x := range c.Checks {
		switch x.Name {
		case api.ClassResource, api.ClassNoEffect, api.ClassFileExposed:
			subject, reason, _ := strings.Cut(x.Reason,
				map[bool]string{true: " ", false: ": "}[x.Name == api.ClassFileExposed])
			by["check"][normalized(subject, reason)] = true
		}
	}
	return by
}

// TestWarningsAgree checks that validate, status, and check report the same warnings, whether or
// not proxies are connected.
func TestWarningsAgree(t *testing.T) {
	dir := agenttest.ShortDir(t)
	files := filepath.Join(dir, "resources")
	if err := os.Mkdir(files, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range odd {
		write(t, filepath.Join(files, name), text)
	}
	// A CA that is about to expire, in a file that others can read.
	cert, key := secrettest.AuthorityOf(t, "old", time.Now().Add(-100*time.Hour), time.Now().Add(time.Hour))
	old, err := json.Marshal(map[string]any{"type": "Mesh", "name": "default",
		"mtls": map[string]any{"enabledBackend": "ca", "backends": []any{
			map[string]any{"name": "ca", "type": "builtin",
				"dpCert": map[string]any{"rotation": map[string]any{"expiration": "1s"}}},
			map[string]any{"name": "old", "type": "provided", "conf": map[string]any{
				"cert": map[string]any{"inlineString": string(cert)}, "key": map[string]any{"inlineString": string(key)}}},
		}}})
	agenttest.Do(t, err)
	write(t, filepath.Join(files, "default.json"), string(old))
	r := agenttest.Up(t, dir, agent.Deps{})
	socket := r.Addrs().API
	compare := func(when string) {
		t.Helper()
		var by map[string]map[string]bool
		for begun := time.Now(); ; <-time.After(10 * time.Millisecond) {
			if by = allWarnings(t, socket, files); maps.Equal(by["validate"], by["status"]) &&
				maps.Equal(by["validate"], by["check"]) {
				break
			} else if time.Since(begun) > agenttest.Patience {
				t.Errorf("%s: they differ", when)
				break
			}
		}
		all := map[string]bool{}
		for _, list := range by {
			maps.Copy(all, list)
		}
		for _, w := range slices.Sorted(maps.Keys(all)) {
			for _, of := range []string{"validate", "status", "check"} {
				if !by[of][w] {
					t.Errorf("%s: %s lacks: %s", when, of, w)
				}
			}
		}
	}
	compare("nothing is connected")
	if n := len(allWarnings(t, socket, files)["check"]); n < 20 {
		t.Errorf("%d warnings: some place has none to give", n)
	}
	for _, id := range []string{"default.web", "default.client", "plain.one", "plain.two"} {
		r.Ask(&core.Node{Id: id}, nil)
	}
	compare("all are connected")

	// Config that would break a disconnected proxy is an error for validate and a problem for the
	// others.
	write(t, filepath.Join(files, "late.yaml"), "type: Dataplane\nmesh: plain\nname: late\nnetworking: {address: "+
		"10.1.0.3, inbound: [{port: 8080, tags: {kuma.io/service: late, kuma.io/protocol: http}}]}\n---\n"+
		strings.ReplaceAll(kindtest.Breaking("bad", "{kind: Mesh}"), "mesh: default", "mesh: plain"))
	_, errs := output(t, socket, command.ExitInvalid, "validate", "-f", files)
	agenttest.Contains(t, errs, "inbound:10.1.0.3:8080", "%LATE%")
	for begun := time.Now(); ; <-time.After(10 * time.Millisecond) {
		s, err := r.Api().Status(t.Context())
		agenttest.Do(t, err)
		if slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
			return p.Severity == api.SeverityError &&
				strings.HasPrefix(p.Reason, "would be withheld: Listener inbound:10.1.0.3:8080")
		}) {
			break
		} else if time.Since(begun) > agenttest.Patience {
			t.Fatalf("%+v", s.Problems)
		}
	}
	out, _ := output(t, socket, command.ExitNo, "check")
	agenttest.Contains(t, out, "FAIL resource: Dataplane/plain/late: would be withheld: Listener inbound:10.1.0.3:8080")
}
