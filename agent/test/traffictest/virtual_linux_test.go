package traffictest_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// relay forwards queries sent to an address of the namespace to a resolver, and returns the
// replies.
func (w *servers) relay(ns *netns, at, resolver string) {
	w.t.Helper()
	var p net.PacketConn
	var err error
	ns.do(func() { p, err = net.ListenPacket("udp", at) })
	agenttest.Do(w.t, err)
	w.hold(p)
	w.wg.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			c, err := net.Dial("udp", resolver)
			if err != nil {
				continue
			}
			w.hold(c)
			_, _ = c.Write(b[:n])
			w.wg.Go(func() {
				defer c.Close()
				reply := make([]byte, 1500)
				_ = c.SetReadDeadline(time.Now().Add(agenttest.Patience))
				if n, err := c.Read(reply); err == nil {
					_, _ = p.WriteTo(reply[:n], from)
				}
			})
		}
	})
}

// TestTrafficByVirtualAddress checks that raw TCP to a domain goes to the virtual address that the
// agent's resolver returns. From there it must reach the address that the proxy resolves the domain
// to with the upstream resolver, also after that address changes. The server speaks first.
func TestTrafficByVirtualAddress(t *testing.T) {
	w := quietWorld(t)
	const name, other = moving + "db.example.com", "other.example.com"
	host := func(at string) string { h, _, err := net.SplitHostPort(at); agenttest.Do(t, err); return h }
	w.servers.move(name, host(mysql))
	w.servers.move(other, host(mysqlNext))
	upstream, err := net.ListenPacket("udp", "127.0.0.1:0")
	agenttest.Do(t, err)
	w.servers.answer(upstream)
	w.agent = w.runAgent(t, "dns.listen=127.0.0.1:0", "dns.upstreams="+upstream.LocalAddr().String())
	dns := w.agent.Addrs().DNS[0]
	for _, at := range []string{routerV4, routerV6} {
		w.servers.relay(w.net.router, net.JoinHostPort(at, "53"), dns)
	}
	list := members()[:1]
	w.base = byKey(t, meshes(w.records.path)+"---\n"+list[0].text+"\n")
	w.put(t, w.base)
	w.runProxies(t, w.agent, list)
	w.live(t)
	_, port, err := net.SplitHostPort(mysql)
	agenttest.Do(t, err)
	w.apply(t, theMesh(strict+", networking: {outbound: {passthrough: false}}")+
		pinnedMatches("outside", "{type: Domain, value: "+name+", port: "+port+", protocol: tcp}"))

	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, dns)
	}}
	ask := func(name string) netip.Addr {
		t.Helper()
		got, err := resolver.LookupNetIP(t.Context(), "ip4", name)
		agenttest.Do(t, err)
		return got[0].Unmap()
	}
	vip := ask(name)
	if !netip.MustParsePrefix("242.0.0.0/8").Contains(vip) || ask(other).String() != host(mysqlNext) {
		t.Fatalf("%s resolves to %s, and %s to %s", name, vip, other, ask(other))
	}
	at := func(host, port string) string { return net.JoinHostPort(host, port) }
	comesTo := func(want string) {
		t.Helper()
		agenttest.Eventually(t, "connections come to "+want, func() bool {
			r := &row{what: name, to: at(vip.String(), port), say: nothing}
			return w.send(t, r, w.address(t, r)).got == want
		})
	}
	comesTo("mysql") // Envoy has resolved the name
	for _, r := range []row{
		{what: "the virtual address", to: at(vip.String(), port), say: nothing, want: "mysql"},
		{what: "another port", to: at(vip.String(), "5432"), say: aLine, want: closed},
		{what: "the address behind it", to: mysql, say: nothing, want: closed},
		{what: "another address", to: mysqlNext, say: nothing, want: closed},
	} {
		t.Run(r.what, func(t *testing.T) { r.run(t, w) })
	}
	w.servers.move(name, host(mysqlNext))
	comesTo("next-mysql")
	w.servers.move(name, "127.0.0.1")
	comesTo(closed)
	if now := ask(name); now != vip {
		t.Errorf("%s, and before %s", now, vip)
	}
	w.apply(t, theMesh(strict+", networking: {outbound: {passthrough: false}}"))
	agenttest.Eventually(t, "the domain resolves as for everybody", func() bool {
		return ask(name).String() == "127.0.0.1"
	})
}
