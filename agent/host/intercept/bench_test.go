package intercept_test

import (
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// BenchmarkLookup queries the agent directly and through the redirection: over one socket, and
// over a new socket per query like libc.
func BenchmarkLookup(b *testing.B) {
	w := newWorld(b)
	w.install(b, intercept.Spec{DNSPort: 15053})
	w.agent(b, w.node).await("state=active", 0)
	for _, c := range []struct{ name, server string }{{"direct", "127.0.0.1:15053"}, {"redirected", outsideV4 + ":53"}} {
		b.Run(c.name+"/one socket", func(b *testing.B) {
			s := w.node.socket(b, "udp", c.server)
			for b.Loop() {
				if got := lookup(s, "web.mesh", mdns.TypeA); got != outsideV4 {
					b.Fatal(got)
				}
			}
		})
		b.Run(c.name+"/new sockets", func(b *testing.B) {
			for b.Loop() {
				if got := w.node.ask(b, "udp", c.server, "web.mesh", mdns.TypeA); got != outsideV4 {
					b.Fatal(got)
				}
			}
		})
	}
}
