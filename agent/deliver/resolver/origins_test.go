package resolver_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	miekg "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// podNetwork is a network namespace whose clients query one server.
type podNetwork struct{ server netip.AddrPort }

func (podNetwork) Name() string { return "/run/netns/pod" }

func (n podNetwork) Original(bool, netip.AddrPort, netip.AddrPort) (netip.AddrPort, error) {
	return n.server, nil
}

func (n podNetwork) Connect(network string, server netip.AddrPort) (*os.File, error) {
	c, err := net.Dial(network, server.String())
	if err != nil {
		return nil, err
	}
	f, err := c.(interface{ File() (*os.File, error) }).File()
	return f, errors.Join(err, c.Close())
}

// TestServerOfAnswer: the state, metrics, the query log, and explanations have the server that
// answered the clients of an intercepted network namespace.
func TestServerOfAnswer(t *testing.T) {
	up, unasked := upstream(t)
	pod, asked := upstream(t)
	n := newNode(t, oneMesh, "dns.upstreams="+up, "dns.queryLog.sample=1").run()
	origins := n.Origins(podNetwork{netip.MustParseAddrPort(pod)})
	n.SetOrigins(origins)
	for range 2 { // the second answer is from the cache
		if got := n.ask("udp", "db.internal.example", miekg.TypeA); !strings.Contains(got, "198.51.100.7") {
			t.Errorf("answer %q", got)
		}
	}
	if unasked.Load() != 0 || asked.Load() != 1 {
		t.Errorf("%d queries to the upstream, %d to the server of the pod", unasked.Load(), asked.Load())
	}
	s := n.State()
	if len(s.Origins) != 1 || s.Origins[0].Netns != "/run/netns/pod" || s.Origins[0].Address != pod ||
		s.Origins[0].Answers != 1 {
		t.Errorf("state: %+v", s.Origins)
	}
	m := gather(t, n.Resolver)
	if m["nearside_dns_origin_queries_total"] != 1 || m["nearside_dns_upstream_request_duration_seconds"] != 1 {
		t.Errorf("metrics: %v", m)
	}
	x, err := explaindns.Name(explaindns.DNSInput{Resolver: s, Meshes: n.last.Load().Meshes},
		&explain.DNSQuestion{Name: "db.internal.example."})
	if want := "gets the answer of the server that it queries: " + pod + " in /run/netns/pod"; err != nil ||
		!strings.Contains(x.Steps[0].Reason, want) {
		t.Errorf("explanation: %v: %+v, want %q", err, x.Steps, want)
	}
	origins.Close()
	n.SetOrigins(nil)
	if s := n.State(); len(s.Origins) != 0 || gather(t, n.Resolver)["nearside_dns_origin_queries_total"] != 1 {
		t.Errorf("after the end of the pod: %+v", s.Origins)
	}
	agenttest.Do(t, n.stop())
	text, err := os.ReadFile(filepath.Join(n.cfg.Paths.Logs, "dns/queries.log"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, line := range lines {
		if want := `"server":"` + pod + `","netns":"/run/netns/pod"}`; !strings.HasSuffix(line, want) {
			t.Errorf("line %s, want %s", line, want)
		}
	}
}
