package traffic_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
)

const refusingMesh = `
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.168.0.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv4}
---
type: MeshPassthrough
mesh: default
name: p
spec: {default: {passthroughMode: Matched, appendMatch: [{type: Domain, value: api.example.com, port: 443, protocol: tls}]}}
---
type: MeshAccessLog
mesh: default
name: all
spec: {to: [{targetRef: {kind: Mesh}, default: {backends: [%s]}}]}
`

// refusingNode returns a mesh whose only proxy logs to the given backends.
func refusingNode(t testing.TB, backends string) *offline.Offline {
	t.Helper()
	o, faults := offline.Read([]offline.Text{{Name: "resources.yaml", Data: fmt.Appendf(nil, refusingMesh, backends)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return o
}

func logsOf(t testing.TB, o *offline.Offline) []*traffic.RefusalLog {
	t.Helper()
	config, _, err := o.Config("default", "default", "web", render.ConfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	logs, err := traffic.RefusalLogs(config.XDS)
	if err != nil {
		t.Fatal(err)
	}
	return logs
}

const (
	// refusedLine is the default format with a time, a destination, a server name, and the
	// protocol.
	refusedLine = "[2026-11-23T04:28:%02d.774Z] NR filter_chain_not_found default 192.168.0.1(web)->%s(external) " +
		"refused: no_filter_chain, sni %s, tls %s, client 10.0.0.1:5061\n"
)

func collect(t testing.TB, logs []*traffic.RefusalLog, text string) *traffic.Refusals {
	t.Helper()
	c := &traffic.Refusals{}
	if err := c.Read(strings.NewReader(text), logs); err != nil {
		t.Fatal(err)
	}
	return c
}

// found lists destinations as text.
func found(c *traffic.Refusals) []string {
	out := []string{}
	for _, d := range c.Destinations() {
		out = append(out, fmt.Sprintf("%d %s %s %s", d.Count, d.Address, d.ServerName, d.Spoke))
	}
	return out
}

// TestHostileRefusals checks that text from clients neither counts as another entry nor exceeds the
// memory limit.
func TestHostileRefusals(t *testing.T) {
	logs := logsOf(t, refusingNode(t, file))
	good := fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "A.example", "-")
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"plain and TLS": {good + good + fmt.Sprintf(refusedLine, 2, "203.0.113.6:25", "-", "ClientHelloNotDetected") +
			fmt.Sprintf(refusedLine, 3, "[2001:db8::1]:443", "-", "-"),
			[]string{"2 203.0.113.5:443 a.example tls", "1 [2001:db8::1]:443  ", "1 203.0.113.6:25  plain"}},
		"no host names": {fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "invalid:_.com", "-") +
			fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "10.0.0.1", "-") +
			fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "*.com", "-"),
			[]string{"2 203.0.113.5:443  tls"}}, // Envoy never writes an asterisk, so it did not write the third line
		"an imitated end": {fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "a.example, tls -, client 1.1.1.1:1", "-"),
			[]string{}},
		"control characters":       {fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "a\x1b[2J.example", "-"), []string{}},
		"another proxy":            {strings.Replace(good, "(web)", "(other)", 1), []string{}},
		"another mesh":             {strings.Replace(good, " default ", " other ", 1), []string{}},
		"no port":                  {fmt.Sprintf(refusedLine, 1, "203.0.113.5", "a.example", "-"), []string{}},
		"not refused":              {strings.Replace(good, "NR", "UF", 1), []string{}},
		"a route that was missing": {strings.Replace(good, "filter_chain_not_found", "route_not_found", 1), []string{}},
		"a long line":              {strings.Repeat("x", 10<<20) + good + good, []string{"1 203.0.113.5:443 a.example tls"}},
		"no end of the line":       {strings.TrimSuffix(good, "\n"), []string{"1 203.0.113.5:443 a.example tls"}},
		"nothing":                  {"\n\n\x00\n", []string{}},
	} {
		if got := found(collect(t, logs, c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	var b strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&b, refusedLine, 1, "203.0.113.5:443", fmt.Sprintf("h%d.example", i), "-")
		if i%1000 == 0 {
			b.WriteString(good)
		}
	}
	c := collect(t, logs, b.String())
	if got := found(c); got[0] != "50 203.0.113.5:443 a.example tls" || len(got) > 20_000 || c.Forgotten == 0 {
		t.Errorf("%d destinations, %d forgotten, first %s", len(got), c.Forgotten, got[0])
	}
}

// TestRefusalFormats checks the reason for a format that lacks an operator, and the lines of a
// complete format.
func TestRefusalFormats(t *testing.T) {
	own := func(typ, format string) string {
		return "{type: File, file: {path: /tmp/own.log, format: {type: " + typ + ", " + strings.ToLower(typ) + ": " +
			format + "}}}"
	}
	for _, c := range []struct{ backend, line, want string }{
		{own("Json", "[{key: to, value: '%DOWNSTREAM_LOCAL_ADDRESS%'}, {key: f, value: 'is %RESPONSE_FLAGS%'}, {key: sni, "+
			"value: '%REQUESTED_SERVER_NAME%'}, {key: mesh, value: '%KUMA_MESH%'}]"),
			`{"f":"is NR","mesh":"default","sni":null,"to":"203.0.113.5:443"}`, "1 203.0.113.5:443  "},
		{own("Json", "[{key: to, value: '%DOWNSTREAM_LOCAL_ADDRESS%'}, {key: f, value: '%RESPONSE_FLAGS%'}, {key: ua, "+
			"value: '%REQ(USER-AGENT)%'}]"),
			`{"f":"NR","ua":"\",\"to\":\"1.1.1.1:1","to":"203.0.113.5:443"}`, "1 203.0.113.5:443  "},
		{own("Plain",
			"'%START_TIME% %REQ(USER-AGENT)% %RESPONSE_FLAGS% to=%DOWNSTREAM_LOCAL_ADDRESS% sni=%REQUESTED_SERVER_NAME%'"),
			"2026-11-23T04:28:02Z NR to=1.1.1.1:1 sni=evil.example NR to=203.0.113.5:443 sni=a.example",
			"1 203.0.113.5:443 a.example tls"},
		{own("Plain", "'%RESPONSE_FLAGS%'"), "", "so the destinations are unknown"},
		{own("Plain", "'%DOWNSTREAM_LOCAL_ADDRESS% x'"), "", "so the refused connections are unknown"},
		{own("Plain", "'%RESPONSE_FLAGS%%DOWNSTREAM_LOCAL_ADDRESS%'"), "", "the format is ambiguous"},
		{"{type: OpenTelemetry, openTelemetry: {endpoint: 'otel.example:4317'}}", "", "it does not write to a file"},
	} {
		logs := logsOf(t, refusingNode(t, c.backend))
		if len(logs) != 1 {
			t.Fatalf("%s: %d logs", c.backend, len(logs))
		}
		got := logs[0].Reason
		if got == "" {
			got = strings.Join(found(collect(t, logs, c.line)), "\n")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.backend, got, c.want)
		}
	}
}

// TestProposePassthrough checks that connections that are still refused are proposed, the most
// frequent first, and that the proposal is a valid policy that permits them.
func TestProposePassthrough(t *testing.T) {
	o := refusingNode(t, file)
	var text strings.Builder
	for i, d := range [][3]string{
		{"203.0.113.5:443", "api.example.com", "-"}, {"203.0.113.5:443", "a.cdn.example", "-"},
		{"203.0.113.6:443", "a.cdn.example", "-"},
		{"203.0.113.5:443", "b.eu.cdn.example", "-"}, {"203.0.113.5:443", "c.eu.cdn.example", "-"},
		{"203.0.113.7:25", "-", "ClientHelloNotDetected"},
		{"203.0.113.8:443", "-", "-"}, {"240.0.0.1:80", "-", "ClientHelloNotDetected"},
	} {
		fmt.Fprintf(&text, refusedLine, i, d[0], d[1], d[2])
	}
	c := collect(t, logsOf(t, o), text.String())
	ask := func(q explain.ConnectionQuestion) (*explain.Flow, error) { return o.ExplainConnection("default", q) }
	p, err := traffic.ProposePassthrough(c,
		traffic.PassthroughOptions{Mesh: "default", Dataplane: "web", Name: "more", Limit: 100, Wildcards: 2}, ask)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/passthrough.yaml")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		err = os.WriteFile("testdata/passthrough.yaml", []byte(p.Policy), 0o644)
	} else if string(want) != p.Policy {
		t.Errorf("proposal differs from the golden file (update it with UPDATE_GOLDEN=1):\n%s", p.Policy)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Allowed) != 1 || p.Allowed[0].ServerName != "api.example.com" {
		t.Errorf("allowed: %+v", p.Allowed)
	}
	doc, err := json.Marshal(p)
	if err != nil || !strings.Contains(string(doc), `"closedAt":"`) {
		t.Errorf("%v: %s", err, doc)
	}

	// With the proposal applied, nothing more is proposed.
	then, faults := offline.Read([]offline.Text{{Name: "now", Data: fmt.Appendf(nil, refusingMesh, file)},
		{Name: "proposal", Data: []byte(p.Policy)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	p, err = traffic.ProposePassthrough(c, traffic.PassthroughOptions{Mesh: "default", Dataplane: "web", Limit: 100},
		func(q explain.ConnectionQuestion) (*explain.Flow, error) {
			return then.ExplainConnection("default", q)
		})
	if err != nil || p.Policy != "" || len(p.Matches) > 0 {
		t.Errorf("%v: %+v", err, p)
	}
	// The limit applies and is reported.
	p, err = traffic.ProposePassthrough(c, traffic.PassthroughOptions{Mesh: "default", Dataplane: "web", Limit: 2}, ask)
	if err != nil || len(p.Matches) > 2 || p.More != 5 {
		t.Errorf("%v: %+v", err, p)
	}
}

// TestMeshNamesAreNotProposed checks that hostnames of the mesh are not proposed.
func TestMeshNamesAreNotProposed(t *testing.T) {
	o := refusingNode(t, file)
	c := collect(t, logsOf(t, o),
		fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "web.mesh", "-")+
			fmt.Sprintf(refusedLine, 2, "203.0.113.5:443", "nobody.mesh", "-"))
	p, err := traffic.ProposePassthrough(c, traffic.PassthroughOptions{Mesh: "default", Dataplane: "web", Limit: 100},
		func(q explain.ConnectionQuestion) (*explain.Flow, error) {
			return o.ExplainConnection("default", q)
		})
	if err != nil || p.Policy != "" || len(p.Matches) > 0 || len(p.Left) != 2 {
		t.Fatalf("%v: %+v", err, p)
	}
	for _, l := range p.Left {
		if !strings.Contains(l.Reason, l.ServerName) || !strings.Contains(l.Reason, "the mesh default") {
			t.Errorf("%s is not proposed: %s", l.ServerName, l.Reason)
		}
	}
}

// TestWildcardsKeepOffMeshNames checks that hosts are not joined into a wildcard that would also
// permit a hostname of a mesh.
func TestWildcardsKeepOffMeshNames(t *testing.T) {
	const more = `
---
{type: Mesh, name: other}
---
{type: MeshService, mesh: other, name: queue, labels: {kuma.io/service: queue}, spec: {selector: {dataplaneTags: {kuma.io/service: queue}}, ports: [{port: 5672, targetPort: 5672}]}}
---
{type: HostnameGenerator, name: g, spec: {selector: {meshService: {matchLabels: {kuma.io/service: queue}}}, template: '{{ .DisplayName }}.svc.corp.example'}}
---
{type: ExternalService, mesh: default, name: db, tags: {kuma.io/service: db, kuma.io/protocol: tcp}, networking: {address: db.eu.shop.example:5432}}
`
	o, faults := offline.Read([]offline.Text{{Name: "resources.yaml", Data: fmt.Appendf(nil, refusingMesh+more, file)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var text strings.Builder
	for i, host := range []string{
		"a.corp.example", "b.corp.example", "a.shop.example", "b.shop.example", "a.eu.shop.example", "b.eu.shop.example",
		"a.us.shop.example", "b.us.shop.example", "a.example", "b.example",
	} {
		fmt.Fprintf(&text, refusedLine, i, "203.0.113.5:443", host, "-")
	}
	p, err := traffic.ProposePassthrough(collect(t, logsOf(t, o), text.String()),
		traffic.PassthroughOptions{Mesh: "default", Dataplane: "web", Limit: 100, Wildcards: 2},
		func(q explain.ConnectionQuestion) (*explain.Flow, error) { return o.ExplainConnection("default", q) })
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, m := range p.Matches {
		got = append(got, m.Value)
	}
	slices.Sort(got)
	want := []string{"*.us.shop.example", "a.corp.example", "a.eu.shop.example", "a.example", "a.shop.example",
		"b.corp.example", "b.eu.shop.example", "b.example", "b.shop.example"}
	if !slices.Equal(got, want) {
		t.Errorf("proposed %q, want %q", got, want)
	}
}

// FuzzRefusals reads arbitrary lines: none fails or counts more than once.
func FuzzRefusals(f *testing.F) {
	logs := logsOf(f, refusingNode(f, file))
	f.Add(fmt.Sprintf(refusedLine, 1, "203.0.113.5:443", "a.example", "-"))
	f.Fuzz(func(t *testing.T, text string) {
		c := collect(t, logs, text)
		if c.Refused > c.Lines {
			t.Fatalf("%d refused connections in %d lines", c.Refused, c.Lines)
		}
		for _, d := range c.Destinations() {
			if strings.ContainsFunc(d.ServerName, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Fatalf("%q is not a host name", d.ServerName)
			}
		}
	})
}
