package traffic_test

import (
	"compress/gzip"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/answer/render"
	"github.com/nearside-mesh/nearside/agent/answer/traffic"
)

// resources is a mesh whose proxy web logs outbound and inbound traffic.
const resources = `type: Mesh
name: default
meshServices: {mode: %s}
%s
---
type: Dataplane
mesh: default
name: web
networking:
  address: 192.0.2.1
  inbound: [{port: 8080, tags: {kuma.io/service: web, kuma.io/protocol: http}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv4%s}
---
{type: Dataplane, mesh: default, name: backend-1, networking: {address: 192.0.2.2, inbound: [{port: 80, tags: {kuma.io/service: backend, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: default, name: db-1, networking: {address: 192.0.2.3, inbound: [{port: 5432, tags: {kuma.io/service: db}}]}}
---
{type: Dataplane, mesh: default, name: cart-1, networking: {address: 192.0.2.4, inbound: [{port: 80, tags: {kuma.io/service: cart, kuma.io/protocol: http}}]}}
---
apiVersion: kuma.io/v1alpha1
kind: MeshService
mesh: default
metadata: {name: orders, namespace: shop}
spec:
  selector: {dataplaneTags: {kuma.io/service: cart}}
  ports: [{port: 80, appProtocol: http}, {port: 81, targetPort: 80, appProtocol: http}]
---
type: MeshAccessLog
mesh: default
name: all
spec:
  to: [{targetRef: {kind: Mesh}, default: {backends: [%s]}}]
  from: [{targetRef: {kind: Mesh}, default: {backends: [%s]}}]
`

const file = "{type: File, file: {path: /tmp/a.log}}"

func plain(format string) string {
	return fmt.Sprintf("{type: File, file: {path: /tmp/a.log, format: {type: Plain, plain: '%s'}}}", format)
}

type world struct{ mode, mesh, lists, to, from, more string }

func (w world) traffic(t testing.TB, o time.Time) *traffic.Usage {
	t.Helper()
	if w.mode == "" {
		w.mode = "Exclusive"
	}
	if w.to == "" {
		w.to = file
	}
	return trafficOf(t, fmt.Sprintf(resources, w.mode, w.mesh, w.lists, w.to, w.from)+w.more, o)
}

func trafficOf(t testing.TB, docs string, o time.Time) *traffic.Usage {
	t.Helper()
	off, faults := offline.Read([]offline.Text{{Name: "r.yaml", Data: []byte(docs)}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	config, _, err := off.Config("", "default", "web", render.ConfigOptions{})
	if err != nil {
		t.Fatal(err)
	}
	backends, err := off.Backends("", "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	x, err := traffic.NewUsage(config.XDS, backends, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// proposal returns the proposal after counting lines.
func (w world) proposal(t testing.TB, o traffic.ReachableOptions, lines ...string) *traffic.ReachableProposal {
	t.Helper()
	x := w.traffic(t, time.Time{})
	logs, err := x.Readable()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Read(strings.NewReader(strings.Join(lines, "\n")+"\n"), logs); err != nil {
		t.Fatal(err)
	}
	p, err := x.Propose(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// summary lists the proposed services and, after a bar, the others with reasons and line counts.
func summary(p *traffic.ReachableProposal) string {
	var proposed, rest []string
	for _, e := range p.Backends {
		s := fmt.Sprintf("%s %s %d", e.Destination, e.Why, e.Lines)
		if e.Unlisted {
			s += " unlisted"
		}
		if e.Proposed {
			proposed = append(proposed, s)
		} else {
			rest = append(rest, s)
		}
	}
	for _, d := range p.Direct {
		rest = append(rest, fmt.Sprint(d.Address, " ", d.Backends, " ", d.Lines))
	}
	for _, u := range p.Unknown {
		rest = append(rest, fmt.Sprintf("unknown %q %d", u.Name, u.Lines))
	}
	return strings.Join(append(append(proposed, "|"), rest...), "; ")
}

func http(second int, destination, host string) string {
	return fmt.Sprintf(`[2026-11-23T10:00:%02d.000Z] default "GET / HTTP/1.1" 200 - 0 2 15 14 "-" "curl" "-" "7d1e" "a.example" "web" "%s" "192.0.2.1" "%s"`, second, destination, host)
}

func tcp(second int, destination, host string) string {
	return fmt.Sprintf(
		`[2026-11-23T10:00:%02d.000Z] - default 192.0.2.1(web)->%s(%s) took 5ms, sent 1 bytes, received: 1 bytes`,
		second, host, destination)
}

// TestUsageFormats checks that any operator that identifies the service is used, and that lines
// without one are not counted for a service.
func TestUsageFormats(t *testing.T) {
	const json = "{type: File, file: {path: /tmp/a.log, format: {type: Json, json: [{key: to, value: " +
		"'%KUMA_DESTINATION_SERVICE%'}, {key: at, value: '%START_TIME%'}, {key: agent, value: '%REQ(USER-AGENT)%'}]}}}"
	for _, c := range []struct {
		name  string
		w     world
		lines []string
		want  string
	}{
		{"default for requests", world{}, []string{http(1, "backend", "192.0.2.2:80"), http(2, "backend", "-")},
			"MeshService/backend:80 used 2; |"},
		{"default for connections", world{}, []string{tcp(1, "db", "192.0.2.3:5432")}, "MeshService/db:5432 used 1; |"},
		{"a service with ports of one format", world{}, []string{http(1, "orders.shop", "-")},
			"MeshService/orders.shop:80 used 1; MeshService/orders.shop:81 used 1; |"},
		{"a name with two meanings", world{mode: "Everywhere"}, []string{tcp(1, "db", "192.0.2.3:5432")},
			"db used 1; MeshService/db:5432 used 1; |"},
		{"tags alone", world{mode: "Disabled"}, []string{tcp(1, "db", "192.0.2.3:5432")}, "db used 1; |"},
		{"JSON", world{to: json}, []string{`{"agent":"\",\"to\":\"db","at":"2026-11-23T10:00:00Z","to":"backend"}`,
			`{"at":null,"to":"db"}`, `{"to":"backend","more":1}`, `{"to":"back`},
			"MeshService/backend:80 used 1; MeshService/db:5432 used 1; |"},
		{"JSON, also of what arrives", world{to: json, from: json}, []string{`{"to":"web"}`}, "|"},
		{"by cluster", world{to: plain("%UPSTREAM_CLUSTER% %REQ(USER-AGENT)% x")},
			[]string{"default_orders_shop_default_msvc_81 db x", "outbound_passthrough_ipv4 db x"},
			"MeshService/orders.shop:81 used 1; |"},
		{"by the address that was dialled", world{to: plain("%DOWNSTREAM_LOCAL_ADDRESS%")}, []string{"VIP-DB",
			"192.0.2.3:5432", "203.0.113.1:80"}, "MeshService/db:5432 used 1; |; 192.0.2.3:5432 [MeshService/db:5432] 1"},
		// two services have 192.0.2.4:80
		{"by instance", world{to: plain("to %UPSTREAM_HOST%")}, []string{"to 192.0.2.3:5432", "to 192.0.2.4:80", "to -"},
			"MeshService/db:5432 used 1; |"},
		{"by host", world{mode: "Disabled", to: plain("%REQ(:AUTHORITY)%")},
			[]string{"backend.mesh", "Backend.mesh:80", "x.mesh", "cart.mesh:81"}, "backend used 2; |"},
		{"by nothing", world{to: plain("%REQ(A)% %KUMA_DESTINATION_SERVICE% %REQ(B)%") + ", " + file},
			[]string{"a backend b", http(1, "db", "-")}, "|"},
		{"own words, own order",
			world{to: plain("%KUMA_DESTINATION_SERVICE%|%KUMA_SOURCE_SERVICE%|%START_TIME%|%REQ(PATH)%")},
			[]string{"db|web|2026-11-23T10:00:00Z|/|web|", "backend|web|-|", "db|cart|-|/", "gone|web|-|/"},
			`MeshService/backend:80 used 1; MeshService/db:5432 used 1; |; unknown "gone" 1`},
	} {
		for i, l := range c.lines {
			if l == "VIP-DB" {
				c.lines[i] = vip(t, c.w, "db")
			}
		}
		if got := summary(c.w.proposal(t, traffic.ReachableOptions{}, c.lines...)); strings.TrimSuffix(got, "; ") != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// vip returns the address that workloads dial for a service.
func vip(t testing.TB, w world, name string) string {
	t.Helper()
	if w.mode == "" {
		w.mode = "Exclusive"
	}
	off, _ := offline.Read([]offline.Text{{Name: "r.yaml",
		Data: []byte(fmt.Sprintf(resources, w.mode, w.mesh, w.lists, file, "") + w.more)}})
	b, err := off.Backends("", "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range b.Items {
		if x.Name == name && (x.Ref != nil || w.mode != "Exclusive") {
			return x.Addresses[0].String()
		}
	}
	t.Fatalf("no %s", name)
	return ""
}

// TestHostileUsage checks that text from clients becomes no service, entry, or YAML, and does not
// exceed the memory limit.
func TestHostileUsage(t *testing.T) {
	const evil = `db", "192.0.2.1" "-"`
	with := func(agent string) string {
		return strings.Replace(http(1, "backend", "192.0.2.2:80"), "curl", agent, 1)
	}
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"an agent that ends a line": {[]string{with(`x" "-" "7d1e" "a" "web" "db" "192.0.2.1" "192.0.2.3:5432`)},
			"MeshService/backend:80 used 1; |"},
		"a path with another entry": {[]string{strings.Replace(http(1, "backend", "-"), "GET /", "GET "+evil, 1)},
			"MeshService/backend:80 used 1; |"},
		"what follows an entry": {[]string{http(1, "backend", "-") + ` "web" "x"`}, "|"},
		"YAML as a name": {[]string{http(1, "db\n- {kind: x}", "-"), http(1, "x: [y", "-"), http(1, "{{x}}", "-")},
			"|"},
		"a name of no service": {[]string{http(1, "--", "-"), http(1, "no.such-service:80", "-")},
			`|; unknown "--" 1; unknown "no.such-service:80" 1`},
		"another proxy": {[]string{strings.Replace(http(1, "backend", "-"), `"web"`, `"other"`, 1)}, "|"},
		"another mesh":  {[]string{strings.Replace(http(1, "backend", "-"), "default", "other", 1)}, "|"},
		"what arrives": {
			[]string{strings.Replace(http(1, "web", "127.0.0.1:8080"), `"a.example" "web"`, `"a.example" "unknown"`, 1)}, "|",
		},
		"what arrives says it is ours": {[]string{strings.Replace(strings.Replace(http(1, "web", "127.0.0.1:8080"),
			"curl", `x" "web" "backend" "192.0.2.1`, 1), `"a.example" "web"`, `"a.example" "unknown"`, 1)}, "|"},
		"control characters": {[]string{http(1, "back\x1b[2Jend", "-"), "\x00", ""}, "|"},
	} {
		p := world{from: file}.proposal(t, traffic.ReachableOptions{}, c.lines...)
		if got := strings.TrimSuffix(summary(p), "; "); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
		n := p.Lines
		if sum := n.Used + n.Outside + n.Inbound + n.Old + n.Foreign + n.Ambiguous + n.Unknown + n.More + n.NoTime +
			n.Long; sum != n.Read {
			t.Errorf("%s: %d lines, %d are counted: %+v", name, n.Read, sum, n)
		}
	}

	var many []string
	for i := range 1000 {
		many = append(many, http(1, fmt.Sprintf("service-%d", i), "-"), tcp(1, "external", fmt.Sprintf("192.0.2.3:%d", i+1)))
	}
	many = append(many, strings.Repeat("x", 10<<20), http(2, "backend", "-"))
	p := world{}.proposal(t, traffic.ReachableOptions{}, many...)
	if len(p.Unknown) != 100 || p.Lines.More != 900 || p.Lines.Long != 1 || p.Lines.Used != 1 || p.Lines.Outside != 1000 ||
		p.Lines.Read != len(many) {
		t.Errorf("%d unknown, %+v", len(p.Unknown), p.Lines)
	}
	if strings.Contains(p.Fragment, "service-") {
		t.Error(p.Fragment)
	}
}

// TestForgeableFormats checks that a log into which clients can write lines is not read, even if
// its other formats are safe.
func TestForgeableFormats(t *testing.T) {
	x := world{to: plain("%KUMA_DESTINATION_SERVICE%"), from: plain("%QUERY_PARAM(a)%")}.traffic(t,
		time.Time{})
	if _, err := x.Readable(); err == nil ||
		!strings.Contains(err.Error(), "/tmp/a.log: one of its text formats has %QUERY_PARAM(a)%") {
		t.Error(err)
	}
	x = world{to: plain("%REQ(A)% %KUMA_DESTINATION_SERVICE% %REQ(B)%")}.traffic(t, time.Time{})
	if len(x.Logs) != 1 || len(x.Logs[0].Hints) != 1 ||
		!strings.Contains(x.Logs[0].Hints[0], "the value of %REQ(A)% before it may hold the text that follows it") {
		t.Errorf("%+v", x.Logs)
	}
	x = world{to: plain("%START_TIME%")}.traffic(t, time.Time{})
	if len(x.Logs[0].Hints) != 1 || !strings.Contains(x.Logs[0].Hints[0], "add %KUMA_DESTINATION_SERVICE%") {
		t.Errorf("%+v", x.Logs[0])
	}
	x = world{to: "{type: OpenTelemetry, openTelemetry: {endpoint: otel}}"}.traffic(t, time.Time{})
	if _, err := x.Readable(); err == nil || !strings.Contains(err.Error(), "it does not write to a file") {
		t.Error(err)
	}
}

// TestLegacyLogs checks that the collector's lines of a TrafficLog do not begin with its address,
// as those in the FIFO do.
func TestLegacyLogs(t *testing.T) {
	docs := fmt.Sprintf(resources, "Disabled", "logging: {defaultBackend: c, backends: [{name: c, type: tcp, "+
		"format: '%KUMA_SOURCE_SERVICE%>%KUMA_DESTINATION_SERVICE%', conf: {address: 'one:1'}}]}", "", file, "")
	docs, _, _ = strings.Cut(docs, "---\ntype: MeshAccessLog")
	x := trafficOf(t, docs+"---\n{type: TrafficLog, mesh: default, name: t, sources: [{match: {kuma.io/service: '*'}}], "+
		"destinations: [{match: {kuma.io/service: '*'}}]}\n", time.Time{})
	logs, err := x.Readable()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Read(strings.NewReader("web>db\nother>db\nweb>external\n"), logs); err != nil {
		t.Fatal(err)
	}
	p, err := x.Propose(traffic.ReachableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := summary(p); got != "db used 1; |" || p.Lines.Foreign != 1 || p.Lines.Outside != 1 ||
		!strings.HasSuffix(logs[0].Path, ".fifo") {
		t.Errorf("%s, %+v", got, p.Lines)
	}
}

// TestFiles reads a file with its rotated backups and skips older lines.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	old, err := os.Create(dir + "/a-2026-11-23T10-00-09.000.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(old)
	fmt.Fprintln(z, http(1, "backend", "-"))
	fmt.Fprintln(z, http(5, "backend", "-"))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/a.log",
		[]byte(tcp(10, "db", "-")+"\n"+`[-] - default 192.0.2.1(web)->-(db) took 5ms, sent 1 bytes, received: 1 bytes`+"\n"+
			strings.Repeat("y", 200_000)+"\n"+tcp(11, "db", "-")), 0o600); err != nil {
		t.Fatal(err)
	}
	for since, want := range map[int]string{
		0:  "MeshService/db:5432 used 3; MeshService/backend:80 used 2; |",
		3:  "MeshService/db:5432 used 2; MeshService/backend:80 used 1; |",
		30: "|",
	} {
		var o time.Time
		if since > 0 {
			o = time.Date(2026, 11, 23, 10, 0, since, 0, time.UTC)
		}
		x := world{}.traffic(t, o)
		logs, err := x.Readable()
		if err != nil {
			t.Fatal(err)
		}
		if unread, err := x.ReadFile(dir+"/a.log", logs); err != nil || len(unread) > 0 {
			t.Fatal(unread, err)
		}
		p, err := x.Propose(traffic.ReachableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(summary(p), "; "); got != want || p.Lines.Long != 1 {
			t.Errorf("since %d: %s, %+v\nwant %s", since, got, p.Lines, want)
		}
	}
	if _, err := (world{}).traffic(t, time.Time{}).ReadFile(dir+"/none.log", nil); err == nil {
		t.Error("a missing file is read")
	}
}

// FuzzUsage checks that each line is counted once and that only services of the mesh are proposed.
func FuzzUsage(f *testing.F) {
	f.Add(http(1, "backend", "192.0.2.2:80"))
	f.Add(tcp(1, "external", "192.0.2.3:5432"))
	f.Add(`{"to":"db"}`)
	x := world{from: file, to: file + ", {type: File, file: {path: /tmp/b.log, format: {type: Json, json: [{key: to, " +
		"value: '%KUMA_DESTINATION_SERVICE%'}]}}}"}.traffic(f, time.Time{})
	logs, err := x.Readable()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		before := x.Lines
		x.Line([]byte(line), logs)
		n := x.Lines
		if sum := n.Used + n.Outside + n.Inbound + n.Foreign + n.Ambiguous + n.Unknown + n.More; n.Read != before.Read+1 ||
			sum != n.Read {
			t.Errorf("%+v after %+v", n, before)
		}
		p, err := x.Propose(traffic.ReachableOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := offline.Read([]offline.Text{{Name: "p", Data: []byte("type: Dataplane\nmesh: default\nname: web\n" +
			strings.Replace(p.Fragment, "  transparentProxying:\n",
				"  address: 192.0.2.1\n  inbound: [{port: 80, tags: {kuma.io/service: web}}]\n  transparentProxying:\n"+
					"    redirectPortInbound: 15006\n    redirectPortOutbound: 15001\n", 1))}}); p.Fragment != "" && len(faults) > 0 {
			t.Errorf("%v\n%s", faults, p.Fragment)
		}
	})
}
