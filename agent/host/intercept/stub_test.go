package intercept_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// stub serves 127.0.0.53 in a namespace, as systemd-resolved does: it queries the server of a
// domain from there. Its own queries are not exempt from interception.
func stub(t testing.TB, n *netNS, servers map[string]string) {
	t.Helper()
	var udp net.PacketConn
	var err error
	n.do(func() { udp, err = net.ListenPacket("udp", "127.0.0.53:53") })
	if err != nil {
		t.Fatal(err)
	}
	s := &mdns.Server{PacketConn: udp, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		reply := new(mdns.Msg).SetRcode(q, mdns.RcodeServerFailure)
		for domain, server := range servers {
			if !strings.HasSuffix(strings.ToLower(q.Question[0].Name), domain) {
				continue
			}
			var c net.Conn
			var err error
			n.do(func() { c, err = net.Dial("udp", server) })
			if err != nil {
				continue
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if m, _, err := new(mdns.Client).ExchangeWithConn(q, &mdns.Conn{Conn: c}); err == nil {
				reply = m
			}
			_ = c.Close()
		}
		_ = w.WriteMsg(reply)
	})}
	done := make(chan error, 1)
	go func() { done <- s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown(); <-done })
}

// TestStubResolver: the queries of a stub resolver on the node reach its own servers, although they
// are redirected and the stub is the agent's upstream.
func TestStubResolver(t *testing.T) {
	w := &world{outside: newNetNS(t), node: newNetNS(t), dir: filepath.Join(t.TempDir(), intercept.DirName)}
	vpn := newNetNS(t)
	link(t, w.node, w.outside, 88)
	link(t, w.node, vpn, 98)
	realServer(t, w.outside, "10.88.0.1:53", host("www.real.example", realV4))
	realServer(t, vpn, "10.98.0.1:53", host("wiki.vpn.example", "10.98.0.9"))
	stub(t, w.node, map[string]string{"real.example.": "10.88.0.1:53", "vpn.example.": "10.98.0.1:53"})
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.agent(t, w.node, resolvConf+"="+conf)
	w.installIn(t, w.node)
	p.awaitNext("state=active")
	for name, want := range map[string]string{
		"www.real.example": realV4, "wiki.vpn.example": "10.98.0.9", "web.mesh": outsideV4, "missing.vpn.example": "NXDOMAIN",
	} {
		if got := w.node.ask(t, "udp", "127.0.0.53:53", name, mdns.TypeA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
