package explain_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

// secured is a mesh with mTLS: web calls the HTTP service backend, which has two dataplanes, and
// the TCP service db.
const secured = `type: Mesh
name: default
mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}
---
type: Dataplane
mesh: default
name: web
networking:
  address: 10.0.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, team: front}}]
  outbound: [{port: 10001, tags: {kuma.io/service: backend}}, {port: 10002, tags: {kuma.io/service: db}}, {port: 10003, tags: {kuma.io/service: nothing}}]
---
type: Dataplane
mesh: default
name: backend-1
networking:
  address: 10.0.0.2
  inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v1}}]
---
type: Dataplane
mesh: default
name: backend-2
networking:
  address: 10.0.0.3
  inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v2}}]
---
type: Dataplane
mesh: default
name: db-1
networking:
  address: 10.0.0.4
  advertisedAddress: 192.0.2.4
  inbound: [{port: 5432, tags: {kuma.io/service: db}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
`

// permission returns a MeshTrafficPermission with one item.
func permission(name, top, from, action string) string {
	return "---\n{type: MeshTrafficPermission, mesh: default, name: " + name + ", spec: {targetRef: " + top +
		", from: [{targetRef: " + from + ", default: {action: " + action + "}}]}}\n"
}

// TestPermissions explains connections and requests in a mesh with mTLS.
func TestPermissions(t *testing.T) {
	const (
		mesh, backend, db = "{kind: Mesh}", "{kind: MeshService, name: backend}", "{kind: MeshService, name: db}"
		web               = "{kind: MeshService, name: web}"
		request, connect  = "request backend:80 path=/x", "connection db:5432"
	)
	legacy := func(name, from, to string) string {
		return "---\n{type: TrafficPermission, mesh: default, name: " + name + ", sources: [{match: {kuma.io/service: '" +
			from + "'}}], destinations: [{match: {kuma.io/service: '" + to + "'}}]}\n"
	}
	for _, tc := range []struct {
		name, docs, ask, verdict string
		behind                   []string // of the permissions
		suggest                  string   // a part of it, "" for none
	}{
		{"no permission", "", request, "denied", nil, "targetRef: {kind: MeshService, name: backend}\n  from:\n" +
			"  - targetRef: {kind: MeshService, name: web}\n    default: {action: Allow}\n"},
		{"no permission for connections", "", connect, "denied", nil, "targetRef: {kind: MeshService, name: db}"},
		{"allowed", permission("p", backend, web, "Allow"), request, "allowed", []string{"p spec.from[0].default"}, ""},
		{"allowed to connect", permission("p", db, web, "Allow"), connect, "allowed", []string{"p spec.from[0].default"}, ""},
		{"allowed by a tag", permission("p", db, "{kind: MeshSubset, tags: {team: front}}", "Allow"), connect,
			"allowed", []string{"p spec.from[0].default"}, ""},
		{"others are allowed", permission("p", db, "{kind: MeshService, name: other}", "Allow"), connect,
			"denied", []string{"p spec.from"}, "name: allow-web-to-db"},
		{"denied", permission("p", db, web, "Deny"), connect, "denied", []string{"p spec.from[0].default"},
			"name: allow-web-to-db"},
		{"all are denied", permission("p", mesh, mesh, "Deny"), request, "denied", []string{"p spec.from[0].default"},
			"name: allow-web-to-backend"},
		{"denied by name", permission("a", "{kind: Dataplane, name: db-1}", web, "Deny"), connect,
			"denied", []string{"a spec.from[0].default"}, "targetRef: {kind: MeshService, name: db}"},
		{"allowed, then denied", permission("all", mesh, mesh, "Allow") + permission("one", db, web, "Deny"), connect,
			"denied", []string{"all spec.from[0].default", "one spec.from[0].default"}, "name: allow-web-to-db"},
		{"legacy", legacy("old", "web", "db"), connect, "allowed", []string{"old sources"}, ""},
		{"legacy, others", legacy("old", "other", "db"), connect, "denied", []string{"old sources"}, "sources:\n- match: " +
			"{kuma.io/service: other}\n- match: {kuma.io/service: web}\ndestinations:\n- match: {kuma.io/service: db}\n"},
		{"legacy, requests", legacy("old", "other", "*"), request, "denied", []string{"old sources"}, "name: old\nsources:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			flow, err := question(t, tc.ask).ask(explain.NewTraffic(meshOf(t, secured+tc.docs)))
			if err != nil {
				t.Fatal(err)
			}
			if flow.Verdict != tc.verdict || len(flow.Servers) == 0 || flow.Servers[0].Verdict != tc.verdict {
				t.Fatalf("%s: %s; want %s of %d servers", flow.Verdict, flow.Reason, tc.verdict, len(flow.Servers))
			}
			var behind []string
			for _, p := range flow.Policies {
				if strings.HasSuffix(p.Type, "Permission") {
					behind = append(behind, p.Name+" "+p.Field)
					if flow.Verdict == "denied" && !strings.Contains(flow.Reason, p.String()) {
						t.Errorf("the reason does not name %s: %s", p, flow.Reason)
					}
				}
			}
			if !slices.Equal(behind, tc.behind) {
				t.Errorf("policies behind it are %q, want %q", behind, tc.behind)
			}
			if (tc.suggest == "") != (flow.Suggest == "") || !strings.Contains(flow.Suggest, tc.suggest) {
				t.Errorf("the suggestion is\n%s\nwant %q in it", flow.Suggest, tc.suggest)
			}
			if flow.Suggest != "" {
				docs := tc.docs
				if strings.Contains(flow.Suggest, "name: old\n") {
					docs = "" // the suggestion replaces the existing policy
				}
				then, err := question(t, tc.ask).ask(explain.NewTraffic(meshOf(t, secured+docs+"---\n"+flow.Suggest)))
				if err != nil || then.Verdict != "allowed" {
					t.Errorf("with the suggestion applied: %v, %v", then, err)
				}
			}
		})
	}
}

// TestServersDisagree checks that the verdict of the servers counts only if it is the same for all.
func TestServersDisagree(t *testing.T) {
	docs := secured + permission("all", "{kind: Mesh}", "{kind: Mesh}", "Allow") +
		permission("two", "{kind: Dataplane, name: backend-2}", "{kind: MeshService, name: web}", "Deny")
	flow, err := question(t, "request backend:80").ask(explain.NewTraffic(meshOf(t, docs)))
	if err != nil {
		t.Fatal(err)
	}
	if flow.Verdict != "allowed" || len(flow.Servers) != 2 ||
		!strings.Contains(flow.Reason, "1 of the 2 servers checked reject it, such as backend-2") {
		t.Errorf("%s: %s, %d servers", flow.Verdict, flow.Reason, len(flow.Servers))
	}
}

// TestVirtualAddressWithoutListener checks that the reason lists the outbounds.
func TestVirtualAddressWithoutListener(t *testing.T) {
	traffic := explain.NewTraffic(meshOf(t, secured+permission("all", "{kind: Mesh}", "{kind: Mesh}", "Allow")))
	named, err := question(t, "connection backend.mesh:80").ask(traffic)
	if err != nil || len(named.Steps) == 0 {
		t.Fatal(named, err)
	}
	flow, err := question(t, "connection "+named.Steps[0].Chose).ask(traffic)
	if err != nil {
		t.Fatal(err)
	}
	const want = ": the dataplane has no transparent proxy; the outbounds of the dataplane are 127.0.0.1:10001 (backend), "
	if flow.Verdict != "closed" || !strings.Contains(flow.Reason, want) {
		t.Errorf("%s: %s, want %s", flow.Verdict, flow.Reason, want)
	}
}

// TestDestinations explains existing and missing destinations.
func TestDestinations(t *testing.T) {
	docs := secured + permission("all", "{kind: Mesh}", "{kind: Mesh}", "Allow")
	for _, tc := range []struct{ ask, verdict, listener, reason string }{
		{"request 127.0.0.1:10001", "allowed", "outbound:127.0.0.1:10001", "forwarded to cluster backend"},
		// without redirection, names of the mesh do not resolve to a listener
		{"request backend.mesh:80", "closed", "", "; dial 127.0.0.1:10001, the address of its outbound"},
		{"connection db:1", "allowed", "outbound:127.0.0.1:10002", "forwarded to cluster db"},
		{"connection nothing:80", "closed", "outbound:127.0.0.1:10003", "has no endpoints"},
		{"connection 127.0.0.1:9", "closed", "", "no listener is bound to 127.0.0.1:9; the outbounds of the dataplane are " +
			"127.0.0.1:10001 (backend), "},
		{"connection 198.51.100.1:443 tls", "allowed", "", "the connection bypasses its proxy"},
		{"connection example.com:443 tls", "allowed", "", "the connection bypasses its proxy"},
		{"connection backend:80", "closed", "outbound:127.0.0.1:10001", "explain a request instead"},
	} {
		flow, err := question(t, tc.ask).ask(explain.NewTraffic(meshOf(t, docs)))
		if err != nil {
			t.Errorf("%s: %v", tc.ask, err)
			continue
		}
		if flow.Verdict != tc.verdict || flow.Listener != tc.listener || !strings.Contains(flow.Reason, tc.reason) {
			t.Errorf("%s: %s, %q: %s; want %s, %q: %s", tc.ask, flow.Verdict, flow.Listener, flow.Reason, tc.verdict,
				tc.listener, tc.reason)
		}
	}
}

// TestInvalidQuestions checks that an error names the field, the value, and the remedy.
func TestInvalidQuestions(t *testing.T) {
	traffic := explain.NewTraffic(meshOf(t, secured))
	for ask, want := range map[string]string{
		"connection backend":                            `to: "backend" is not HOST:PORT`,
		"connection :80":                                `to: ":80" is not HOST:PORT`,
		"connection 2001:db8::1:80":                     `to: "2001:db8::1:80" is not HOST:PORT`,
		"connection backend:0":                          `to: the port "0" is not a number from 1 to 65535`,
		"connection backend:65536":                      `to: the port "65536" is not a number from 1 to 65535`,
		"connection backend:http":                       `to: the port "http" is not a number`,
		"connection b*ckend:80":                         `to: the host "b*ckend" is not a host name`,
		"connection bäcker.example:80":                  `use the xn-- form`,
		"connection a..b:80":                            `it has an empty label`,
		"connection 10.0.0.1:80 ip=10.0.0.2":            `ip: "10.0.0.2" cannot be set because to contains the address`,
		"connection backend:80 ip=x":                    `ip: "x" is not an IP address`,
		"connection backend:80 sni=a_ä":                 `sni: "a_ä" is not a host name`,
		"request backend:80 method=G(T":                 `method: "G(T" is not a method`,
		"request backend:80 path=x":                     `path: "x" does not begin with a slash`,
		"request backend:80 :authority=x":               `headers[0]: ":authority"`,
		"connection " + strings.Repeat("a", 300) + ":1": `has 300 bytes; at most 253 are allowed`,
	} {
		_, err := question(t, ask).ask(traffic)
		var bad *explain.QuestionError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", ask, err, want)
		}
	}
	sni := "a"
	if _, err := traffic.Connection(&explain.ConnectionQuestion{Target: explain.Target{From: "web", To: "a:1"},
		SNI: &sni}); err == nil {
		t.Error("a server name without TLS is accepted")
	}
	var missing *generate.NotFoundError
	if _, err := question(t, "connection a:1 from=nobody").ask(traffic); !errors.As(err, &missing) {
		t.Errorf("an unknown dataplane: %v", err)
	}
}

// BenchmarkFlow measures an explanation with computed configs: with 200 entries, and through both
// proxies of a mesh. It takes about a millisecond.
func BenchmarkFlow(b *testing.B) {
	var entries []string
	for i := range 200 {
		entries = append(entries, "tls Domain host-"+string(rune('a'+i%26))+strings.Repeat("x", i/26)+".example.com 443")
	}
	for name, tc := range map[string]struct{ docs, ask string }{
		"entries": {redirected(entries...), "connection 203.0.113.7:443 sni=host-qxxx.example.com"},
		"servers": {secured + permission("all", "{kind: Mesh}", "{kind: Mesh}", "Allow"), "request backend:80"},
	} {
		b.Run(name, func(b *testing.B) {
			traffic := explain.NewTraffic(meshOf(b, tc.docs))
			q := question(b, tc.ask)
			for b.Loop() {
				if flow, err := q.ask(traffic); err != nil || flow.Verdict != "allowed" {
					b.Fatal(flow, err)
				}
			}
		})
	}
}

// TestPatches checks that a patch is reported only for the resources that it changes.
func TestPatches(t *testing.T) {
	docs := secured + permission("all", "{kind: Mesh}", "{kind: Mesh}", "Allow") + `---
type: MeshProxyPatch
mesh: default
name: quick
spec:
  targetRef: {kind: MeshService, name: web}
  default:
    appendModifications:
    - cluster: {operation: Patch, match: {name: backend}, value: "connectTimeout: 1s"}
`
	for ask, want := range map[string]int{"request backend:80": 1, "connection db:5432": 0} {
		flow, err := question(t, ask).ask(explain.NewTraffic(meshOf(t, docs)))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, s := range flow.Steps {
			for _, p := range s.Policies {
				if p.Type == "MeshProxyPatch" {
					got++
					if s.At != "cluster" || p.Name != "quick" || p.Field != "spec.default.appendModifications" {
						t.Errorf("%s: step %s has policy %s", ask, s.At, p)
					}
				}
			}
		}
		if got != want {
			t.Errorf("%s: %d steps have the patch as policy, want %d", ask, got, want)
		}
	}
}

// TestServerWithoutOutbound checks that a connection to a server's own address has no certificate
// and is denied.
func TestServerWithoutOutbound(t *testing.T) {
	docs := secured + permission("all", "{kind: Mesh}", "{kind: Mesh}", "Allow") + `---
type: Dataplane
mesh: default
name: job
networking:
  address: 10.0.0.7
  inbound: [{port: 80, tags: {kuma.io/service: job}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
`
	for ask, allowed := range map[string]bool{
		"request backend:80 from=job":           true,
		"request 10.0.0.2:80 from=job":          false,
		"request 10.0.0.2:80 from=job http2":    false,
		"connection 10.0.0.2:80 from=job tls":   false,
		"connection 192.0.2.4:5432 from=job":    false,
		"connection 198.51.100.9:5432 from=job": true, // a dataplane outside the mesh decides itself
	} {
		flow, err := question(t, ask).ask(explain.NewTraffic(meshOf(t, docs)))
		if err != nil {
			t.Fatal(err)
		}
		if got := flow.Verdict == "allowed"; got != allowed {
			t.Errorf("%s: %s: %s", ask, flow.Verdict, flow.Reason)
		}
		if !allowed && (len(flow.Servers) != 1 || flow.Servers[0].Verdict != "closed") {
			t.Errorf("%s: servers %+v", ask, flow.Servers)
		}
	}
}

// FuzzTarget asks about arbitrary targets: the result is a flow or an error that names the field.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{
		"a:1", "[::1]:80", "10.0.0.1:443", "[fe80::1%eth0]:1", "[::ffff:1.2.3.4]:5", "a.:7", "*:1", ":", "a:+1",
	} {
		f.Add(seed, "", "a.b")
	}
	f.Add("backend:80", "1.2.3.4", "x")
	traffic := explain.NewTraffic(meshOf(f, redirected("tls Domain *.b 443")))
	f.Fuzz(func(t *testing.T, to, ip, sni string) {
		target := explain.Target{From: "web", To: to, IP: ip}
		flow, err := traffic.Connection(&explain.ConnectionQuestion{Target: target, TLS: true, SNI: &sni})
		var bad *explain.QuestionError
		if err != nil && (!errors.As(err, &bad) || bad.Field == "" || bad.Reason == "") {
			t.Error(err)
		}
		if err == nil && (flow.Verdict == "" || flow.Reason == "") {
			t.Errorf("%+v", flow)
		}
		flow, err = traffic.Request(&explain.RequestQuestion{Target: target, Path: ip,
			Headers: []explain.Header{{Name: "host", Value: sni}}})
		if err != nil && !errors.As(err, &bad) || err == nil && flow.Verdict == "" {
			t.Errorf("%+v, %v", flow, err)
		}
	})
}

// TestServerClosesConnection checks that the client's proxy responds if the server's proxy closes
// the connection, and that a client that waits for the server gets its first bytes even if it is
// denied, with and without mTLS.
func TestServerClosesConnection(t *testing.T) {
	const old = "---\n{type: TrafficPermission, mesh: default, name: old, sources: [{match: {kuma.io/service: db}}], " +
		"destinations: [{match: {kuma.io/service: backend}}]}\n"
	ask := func(docs, text string) *explain.Flow {
		t.Helper()
		flow, err := question(t, text).ask(explain.NewTraffic(meshOf(t, secured+docs)))
		if err != nil {
			t.Fatal(err)
		}
		return flow
	}
	if f := ask(old, "request backend:80"); f.Verdict != "denied" || f.Status != 503 || f.Flag != "UC" ||
		f.Servers[0].Status != 0 {
		t.Errorf("a legacy permission for others: %s with %d %s: %s", f.Verdict, f.Status, f.Flag, f.Reason)
	}
	if f := ask("", "request backend:80"); f.Verdict != "denied" || f.Status != 403 {
		t.Errorf("no permission: %s with %d: %s", f.Verdict, f.Status, f.Reason)
	}
	others := permission("p", "{kind: MeshService, name: db}", "{kind: MeshService, name: other}", "Allow")
	target := explain.Target{From: "web", To: "db:5432"}
	for silent, heard := range map[bool]bool{true: true, false: false} {
		f, err := explain.NewTraffic(meshOf(t, secured+others)).Connection(&explain.ConnectionQuestion{Target: target,
			Silent: silent})
		if err != nil || f.Verdict != "denied" ||
			strings.Contains(f.Reason, "what the server says before is heard") != heard {
			t.Errorf("silent %v: %+v, %v", silent, f, err)
		}
	}
}
