package agent_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// lookup queries the resolver of an agent with an ordinary DNS client.
func lookup(t *testing.T, at, name string) string {
	t.Helper()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, at)
	}}
	addrs, err := r.LookupNetIP(t.Context(), "ip4", name)
	switch {
	case err != nil && strings.Contains(err.Error(), "no such host"):
		return "none"
	case err != nil:
		return err.Error()
	}
	return addrs[0].Unmap().String()
}

// TestNames checks that the resolver has the names of all resources when the agent is ready. The
// names must follow resource changes, and the reloadable fields must follow the config.
func TestNames(t *testing.T) {
	dir := agenttest.ShortDir(t)
	config := filepath.Join(dir, "agent.yaml")
	agenttest.Write(t, config, "dns: {suffixes: [mesh]}\n")
	listen := fmt.Sprintf("dns.listen=127.0.0.1:%d", freePort(t))
	options := agenttest.Options(dir, listen, "dns.upstreams=127.0.0.1:1")
	options.File = config
	r := agenttest.Up(t, dir, agent.Deps{Reload: options}, listen, "dns.upstreams=127.0.0.1:1")
	at := r.Addrs().DNS[0]
	if got := lookup(t, at, "web.mesh."); !strings.Contains(got, "server misbehaving") {
		t.Errorf("without a mesh: %s; it is to fail", got)
	}
	until := func(name string, is func(string) bool) {
		t.Helper()
		got := ""
		agenttest.Eventually(t, name+" resolves otherwise", func() bool { got = lookup(t, at, name); return is(got) })
	}
	virtual := func(s string) bool {
		a, err := netip.ParseAddr(s)
		return err == nil && netip.MustParsePrefix("240.0.0.0/8").Contains(a)
	}
	none := func(s string) bool { return s == "none" }
	agenttest.ByAPI(t, r.Store(),
		"type: Mesh\nname: default\n---\n"+agenttest.DataplaneText("default", "web", "192.0.2.1"))
	until("web.mesh.", virtual)
	until("nothing.mesh.", none)

	agenttest.Write(t, config, "dns: {suffixes: [mesh, corp]}\n")
	r.Reload(options)
	until("x.corp.", none)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}

	second := agenttest.Up(t, dir, agent.Deps{}, listen)
	if got := lookup(t, second.Addrs().DNS[0], "web.mesh."); !virtual(got) {
		t.Errorf("an agent that has read its state answers %s at once", got)
	}
}
