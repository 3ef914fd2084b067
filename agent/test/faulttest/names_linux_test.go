package faulttest_test

import "testing"

// TestResolver tests a resolver whose upstream does not respond.
func TestResolver(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.set = append(n.set, "dns.listen="+n.ip+":15053", "dns.upstreams="+n.ip+":9")
	n.file("base.yaml", base)
	n.start()
	row{fault: "dead upstream", provoke: func(*testing.T, *node) func() {
		for range 3 {
			n.command("nearside dns lookup example.com A")
		}
		return nil
	}, commands: []string{"nearside dns lookup example.com A", "nearside status"}, stays: true,
		says: []string{"SERVFAIL", "no upstream responds ($IP:9)"}, problem: "dns", severity: warning}.test(t, n)
}
