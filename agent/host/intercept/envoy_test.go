package intercept_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
	"github.com/nearside-mesh/nearside/dns/table"
)

// strictDNS has a cluster with a name of the mesh, and one with an outside name for each of two
// name servers.
const strictDNS = `admin: {address: {pipe: {path: %s}}}
static_resources:
  clusters: [%s, %s, %s]
`

// strictDNSCluster returns a cluster whose name Envoy looks up at a server.
func strictDNSCluster(name, host, server string) string {
	return fmt.Sprintf(`{name: %s, type: STRICT_DNS, connect_timeout: 1s, dns_refresh_rate: 1s, dns_lookup_family: V4_ONLY,
    load_assignment: {cluster_name: %s, endpoints: [{lb_endpoints: [{endpoint: {address:
      {socket_address: {address: %s, port_value: 80}}}}]}]},
    typed_dns_resolver_config: {name: envoy.network.dns_resolver.cares, typed_config: {
      "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig,
      resolvers: [{socket_address: {address: %s, port_value: 53}}]}}}`, name, name, host, server)
}

// TestEnvoy: an Envoy, which keeps its sockets open, gets the names of the mesh from the agent, and
// other names from the server that it queries.
func TestEnvoy(t *testing.T) {
	path := envoytest.Find(t)
	w := newWorld(t)
	const other = "203.0.113.8" // of real.example, from the other server
	realServer(t, w.outside, otherV4+":53",
		table.Host{Name: "real.example", Addrs: []netip.Addr{netip.MustParseAddr(other)}})
	w.install(t, intercept.Spec{DNSPort: 15053})
	p := w.agent(t, w.node)
	p.awaitNext("state=active")
	var e *envoytest.Process
	w.node.do(func() {
		e = envoytest.Start(t, path, "", func(admin string) ([]byte, error) {
			return fmt.Appendf(nil, strictDNS, admin, strictDNSCluster("web", "web.mesh", outsideV4),
				strictDNSCluster("real", "real.example", outsideV4), strictDNSCluster("other", "real.example", otherV4)), nil
		})
	})
	if t.Failed() || e == nil {
		t.FailNow()
	}
	want := []string{"web::" + outsideV4 + ":80::", "real::" + realV4 + ":80::", "other::" + other + ":80::"}
	tick, limit := time.NewTicker(50*time.Millisecond), time.After(patience) // Envoy does not report its lookups
	defer tick.Stop()
	for len(want) > 0 {
		_, clusters := e.Admin("/clusters")
		want = slices.DeleteFunc(want, func(x string) bool { return strings.Contains(clusters, x) })
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("Envoy does not have %s:\n%s", want, clusters)
		}
	}
	if r, err := intercept.Inspect(t.Context(), w.ns, w.dir); err != nil || r.State != intercept.StateActive ||
		r.Counts.Queries == 0 {
		t.Errorf("the report: %+v, %v", r, err)
	}
}

// TestTCP: connections are redirected as an Envoy requires.
func TestTCP(t *testing.T) {
	w := newWorld(t)
	w.agent(t, w.node)
	w.greet(t, w.node, ":15001", "outbound")
	w.greet(t, w.node, ":15006", "inbound")
	for _, port := range []string{"80", "22"} {
		for _, at := range []string{outsideV4, otherV4, "[" + outsideV6 + "]"} {
			w.greet(t, w.outside, at+":"+port, "outside")
		}
		w.greet(t, w.node, ":"+port, "workload")
	}
	prefix := netip.MustParsePrefix
	w.install(t, intercept.Spec{DNSPort: 15053, Outbound: 15001, Inbound: 15006, EnvoyUsers: []uint32{5678},
		ExcludeUsers: []uint32{1235}, ExcludeOutboundPorts: []uint16{22},
		ExcludeInboundPorts: []uint16{22}, ExcludeOutboundCIDRs: []netip.Prefix{prefix(otherV4 + "/32")}})
	const me = 1234
	for _, c := range []struct {
		from *netNS
		uid  int
		to   string
		want string
	}{
		{w.node, me, outsideV4 + ":80", "outbound"},
		{w.node, me, "[" + outsideV6 + "]:80", "outbound"},
		{w.node, me, "240.0.0.1:80", "outbound"}, // a virtual address
		{w.node, 1235, outsideV4 + ":80", "outside"},
		{w.node, me, outsideV4 + ":22", "outside"},
		{w.node, me, otherV4 + ":80", "outside"},
		{w.node, me, "127.0.0.1:80", "workload"},
		{w.node, me, nodeV4 + ":80", "workload"},
		{w.node, 5678, outsideV4 + ":80", "outside"},
		{w.node, 5678, nodeV4 + ":80", "inbound"}, // its own workload at its own address
		{w.node, 5678, "127.0.0.1:80", "workload"},
		{w.outside, me, nodeV4 + ":80", "inbound"},
		{w.outside, me, "[" + nodeV6 + "]:80", "inbound"},
		{w.outside, me, nodeV4 + ":22", "workload"},
	} {
		if got := c.from.greeting(t, c.uid, c.to); got != c.want {
			t.Errorf("uid %d to %s: %s, want %s", c.uid, c.to, got, c.want)
		}
	}
	if r, err := intercept.Inspect(t.Context(), w.ns, w.dir); err != nil || r.Counts.Connections == 0 ||
		r.Counts.Inbound == 0 {
		t.Errorf("the report: %+v, %v", r, err)
	}
	w.greet(t, w.node, ":15002", "virtual")
	w.install(t, intercept.Spec{DNSPort: 15053, Outbound: 15001, Inbound: 15006, EnvoyUsers: []uint32{5678},
		Virtual: 15002, VirtualCIDRs: []netip.Prefix{prefix("240.0.0.0/8"), prefix("fd00:fd00::/64")}})
	for to, want := range map[string]string{"240.0.0.1:80": "virtual", "[fd00:fd00::1]:80": "virtual",
		"241.0.0.1:80": "outbound", outsideV4 + ":80": "outbound"} {
		if got := w.node.greeting(t, me, to); got != want {
			t.Errorf("with a port for virtual addresses, %s: %s, want %s", to, got, want)
		}
	}
	if _, err := intercept.Uninstall(w.ns, w.dir); err != nil {
		t.Fatal(err)
	}
	if got := w.node.greeting(t, me, outsideV4+":80"); got != "outside" {
		t.Errorf("after: %s", got)
	}
	for _, entry := range w.node.entries(t, "sport=15001 ") {
		t.Errorf("conntrack still redirects: %s", entry)
	}
}

// greet sends a text to every client.
func (w *world) greet(t *testing.T, n *netNS, at, text string) {
	t.Helper()
	var l net.Listener
	var err error
	n.do(func() { l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", at) })
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(text))
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
}
