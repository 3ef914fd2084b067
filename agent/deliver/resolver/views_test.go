package resolver_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/deliver/resolver"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

const (
	external = "db.example.com"
	outside  = "NOERROR 198.51.100.7" // the upstream's answer
)

// viewed is a node whose resolver stores views. Its runs follow one another.
type viewed struct {
	*node
	own   netip.Addr
	docs  string
	file  string
	clock atomic.Int64 // seconds
}

// newViewed returns a node with two dataplanes: x reaches db and an external name, and has the
// address of this host. y does not reach the external name.
func newViewed(t *testing.T) *viewed {
	t.Helper()
	up, _ := upstream(t)
	n := &viewed{own: ownAddress(t), file: filepath.Join(t.TempDir(), resolver.ViewsFile)}
	const tp = "  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, " +
		"reachableServices: [db]}\n"
	n.docs = oneMesh + "networking: {outbound: {passthrough: false}}\n" +
		dataplane("default", "x", n.own.String(), "x", tp) + dataplane("default", "y", "10.0.0.2", "y", tp) +
		dataplane("default", "db", "10.0.0.3", "db", "") +
		"---\ntype: MeshPassthrough\nmesh: default\nname: p\nlabels: {nearside.io/dns-pinned: \"true\"}\nspec:\n" +
		"  targetRef: {kind: MeshSubset, tags: {kuma.io/service: x}}\n" +
		"  default: {passthroughMode: Matched, appendMatch: [{type: Domain, value: " + external + ", port: 5432, " +
		"protocol: tcp}]}\n"
	n.node = newNode(t, "", "dns.listen=0.0.0.0:0", "dns.upstreams="+up, "dns.reachableOnly=true", "dns.cacheSize=0")
	n.domains = []string{external}
	return n
}

// start ends the current run and starts another one, with the given dataplanes connected.
func (n *viewed) start(isNew bool, local ...string) {
	n.t.Helper()
	n.end()
	n.reconcile(n.docs, local...)
	r, err := resolver.New(resolver.Options{Config: n.cfg, Last: n.last.Load, Log: n.logs.Logger(), Views: n.file,
		New: isNew, Now: func() time.Time { return time.Unix(n.clock.Load(), 0) }})
	if err != nil {
		n.t.Fatal(err)
	}
	n.Resolver = r
	n.run()
}

// end ends the current run.
func (n *viewed) end() {
	n.t.Helper()
	if n.stop != nil {
		agenttest.Do(n.t, n.stop())
	}
}

// connect changes the connected dataplanes.
func (n *viewed) connect(local ...string) {
	n.t.Helper()
	n.reconcile(n.docs, local...)
	n.Update()
}

// want checks answers, by client and name. VIP is any virtual address.
func (n *viewed) want(what string, want map[string]string) {
	n.t.Helper()
	port := netip.MustParseAddrPort(n.State().Listen[0]).Port()
	for key, want := range want {
		client, name, _ := strings.Cut(key, " ")
		at := map[string]netip.Addr{"own": n.own, "loopback": netip.MustParseAddr("127.0.0.1")}[client]
		got := askAt(n.t, netip.AddrPortFrom(at, port).String(), "udp", name, miekg.TypeA)
		if strings.HasPrefix(got, "NOERROR 24") {
			got = "VIP"
		}
		if got != want {
			n.t.Errorf("%s: %s gets %q, want %q", what, key, got, want)
		}
	}
}

// explained checks verdicts of explain dns, by dataplane and name.
func (n *viewed) explained(what string, want map[string]string) {
	n.t.Helper()
	for key, want := range want {
		dataplane, name, _ := strings.Cut(key, " ")
		got, err := explaindns.Name(explaindns.DNSInput{Resolver: n.State(), Meshes: n.last.Load().Meshes},
			&explain.DNSQuestion{Name: name, Dataplane: dataplane})
		if err != nil || got.Verdict != want {
			n.t.Errorf("%s: %s is explained with %+v, %v, want %s", what, key, got, err, want)
		}
	}
}

// TestViewsAfterARestart checks that workloads have their views from the first query after a
// restart on, before their Envoys are back, and for at most a minute.
func TestViewsAfterARestart(t *testing.T) {
	n := newViewed(t)
	both := []string{"default/x", "default/y"}
	n.start(true)
	n.want("without Envoys", map[string]string{"own " + external: outside, "own x.mesh": "VIP"})
	n.connect(both...)
	with := map[string]string{"own " + external: "VIP", "loopback " + external: outside, "own x.mesh": "NXDOMAIN",
		"own db.mesh": "VIP", "loopback x.mesh": "VIP", "own www.example.com": outside}
	n.want("with Envoys", with)
	for range 2 { // the second restart follows before any Envoy is back
		n.start(false)
		n.want("after a restart", with)
	}
	n.clock.Add(59)
	n.connect("default/y")
	n.want("after 59 s, with one Envoy", with)
	n.clock.Add(1)
	n.connect("default/y")
	n.want("after a minute, with one Envoy", map[string]string{"own " + external: outside, "own x.mesh": "VIP"})
	n.start(false)
	n.want("after another restart", map[string]string{"own " + external: outside, "own x.mesh": "VIP"})
	if s := n.State(); s.Problem != "" {
		t.Errorf("problem: %s", s.Problem)
	}
}

// TestViewsWithoutTheirMesh checks that external names of a stored view fail while its mesh is not
// loaded, for at most a minute.
func TestViewsWithoutTheirMesh(t *testing.T) {
	n := newViewed(t)
	n.start(true, "default/x")
	docs := n.docs
	for what, other := range map[string]string{"another mesh": "type: Mesh\nname: other\n", "no mesh": ""} {
		n.docs = other
		n.start(false)
		n.want(what, map[string]string{"own " + external: "SERVFAIL", "loopback " + external: "SERVFAIL",
			"own " + names.Canary: "NOERROR 192.0.2.53", "own www.example.com": outside})
	}
	n.docs = docs
	n.connect()
	n.want("the mesh", map[string]string{"own " + external: "VIP"})
	n.docs = ""
	n.clock.Add(60)
	n.connect()
	n.want("after a minute", map[string]string{"own " + external: outside})
}

// TestUnknownViews checks that names that a view may change fail if the stored views are damaged,
// missing, or of another release, until the Envoy of a workload is back, and for at most 30 s. The
// status names the file and the reason.
func TestUnknownViews(t *testing.T) {
	n := newViewed(t)
	n.start(true, "default/x", "default/y")
	n.end()
	valid, err := os.ReadFile(n.file)
	agenttest.Do(t, err)
	rest := string(valid[bytes.IndexByte(valid, '\n'):])
	write := func(text string) func() { return func() { agenttest.Write(t, n.file, text) } }
	for _, c := range []struct {
		what, why string
		change    func()
	}{
		{"missing", "it does not exist, although the agent has run before", func() {}},
		{"empty", "it is damaged: its first line is invalid", write("")},
		{"cut", "it is damaged: its content does not match its checksum", write(string(valid[:len(valid)-1]))},
		{"older", `it has the format "0", and this release supports 1`, write("nearside-dns-views 0 abc" + rest)},
		{"newer", `it has the format "2", and this release supports 1`, write("nearside-dns-views 2 abc" + rest)},
		{"a directory", "is a directory", func() { agenttest.Do(t, os.Mkdir(n.file, 0o755)) }},
		{"a pipe", "", func() { agenttest.Do(t, syscall.Mkfifo(n.file, 0o600)) }},
	} {
		n.end() // it may still write
		agenttest.Do(t, os.RemoveAll(n.file))
		c.change()
		for range 2 { // a restart meanwhile does not make them known
			n.start(false)
			if s := n.State(); !strings.Contains(s.Problem, "the DNS views of the last run are unknown ("+n.file+": ") ||
				!strings.Contains(s.Problem, c.why) || s.State != api.DNSServing || !n.Check().Degraded ||
				n.Check().Reason != s.Problem {
				t.Errorf("%s: state %s, problem %q, check %+v", c.what, s.State, s.Problem, n.Check())
			}
			n.want(c.what, map[string]string{"own " + external: "SERVFAIL", "loopback " + external: "SERVFAIL",
				"own x.mesh": "SERVFAIL", "own db.mesh": "SERVFAIL", "loopback x.mesh": "VIP", "own www.example.com": outside,
				"own nothing.mesh": "NXDOMAIN", "own " + names.Canary: "NOERROR 192.0.2.53"})
			n.explained(c.what, map[string]string{"x " + external: explaindns.DNSFails, " " + external: explaindns.DNSFails,
				"x db.mesh": explaindns.DNSFails, " db.mesh": explaindns.DNSResolves, "x www.example.com": explaindns.DNSForwarded})
		}
		n.connect("default/x")
		n.want(c.what+", with an Envoy", map[string]string{"own " + external: "VIP", "loopback " + external: "SERVFAIL",
			"own x.mesh": "NXDOMAIN", "own db.mesh": "VIP"})
		n.explained(c.what+", with an Envoy", map[string]string{"x " + external: explaindns.DNSResolves,
			" " + external: explaindns.DNSFails, "x x.mesh": explaindns.DNSNone})
		n.clock.Add(30)
		n.connect("default/x")
		n.want(c.what+", after 30 s", map[string]string{"own " + external: "VIP", "loopback " + external: "VIP"})
		if c.what == "a directory" { // a file cannot replace it
			agenttest.Eventually(t, "the failed write is reported", func() bool {
				return strings.Contains(n.State().Problem, "cannot be stored")
			})
		} else if s := n.State(); s.Problem != "" {
			t.Errorf("%s: after 30 s: %s", c.what, s.Problem)
		}
	}
	n.end() // the last run has replaced the pipe
	n.start(false)
	n.want("after that", map[string]string{"own " + external: "VIP"})
}

// TestFlippedViews checks that a flipped bit anywhere in the stored views is noticed.
func TestFlippedViews(t *testing.T) {
	n := newViewed(t)
	n.start(true, "default/x")
	n.end()
	valid, err := os.ReadFile(n.file)
	agenttest.Do(t, err)
	unknown := func(content []byte) bool {
		agenttest.Write(t, n.file, string(content))
		r, err := resolver.New(resolver.Options{Config: n.cfg, Last: func() *status.Result { return nil }, Views: n.file})
		agenttest.Do(t, err)
		return strings.Contains(r.State().Problem, "are unknown")
	}
	if unknown(valid) {
		t.Fatal("valid views are unknown")
	}
	for i := range valid {
		damaged := slices.Clone(valid)
		damaged[i] ^= 1 << (i % 8)
		if !unknown(damaged) {
			t.Errorf("byte %d: %q", i, damaged)
		}
	}
}

// TestViewsOnAFailingDisk checks that views that cannot be stored are reported, and stored later.
func TestViewsOnAFailingDisk(t *testing.T) {
	n := newViewed(t)
	n.file = filepath.Join(t.TempDir(), "gone", resolver.ViewsFile)
	n.start(true, "default/x")
	agenttest.Eventually(t, "the status reports it", func() bool {
		return strings.Contains(n.State().Problem, "the DNS views of the workloads cannot be stored (")
	})
	agenttest.Do(t, os.Mkdir(filepath.Dir(n.file), 0o755))
	n.end() // writes them
	n.start(false)
	n.want("after a restart", map[string]string{"own " + external: "VIP"})
}
