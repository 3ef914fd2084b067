package intercept_test

import (
	"os/exec"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// Rules of other programs, as nft lists them. The programs need not run.
const (
	// kumaRules are those of Kuma's transparent proxy with DNS (iptables -t raw ... -j CT --zone).
	kumaRules = `table ip raw {
	chain PREROUTING {
		type filter hook prerouting priority raw; policy accept;
		udp sport 53 ct zone set 1
	}
	chain OUTPUT {
		type filter hook output priority raw; policy accept;
		udp dport 53 meta skuid 5678 ct zone set 1
		udp sport 15153 meta skuid 5678 ct zone set 2
		udp dport 53 ct zone set 2
	}
}
table ip nat {
	chain OUTPUT {
		type nat hook output priority -100; policy accept;
		udp dport 53 meta skuid 5678 return
		udp dport 53 redirect to :15153
	}
}
`
)

// kumaCommands are the same rules for the shell, with the targets of iptables.
const kumaCommands = `iptables-nft -w -t raw -A PREROUTING -p udp --sport 53 -j CT --zone 1
iptables-nft -w -t raw -A OUTPUT -p udp --dport 53 -m owner --uid-owner 5678 -j CT --zone 1
iptables-nft -w -t raw -A OUTPUT -p udp --sport 15153 -m owner --uid-owner 5678 -j CT --zone 2
iptables-nft -w -t raw -A OUTPUT -p udp --dport 53 -j CT --zone 2
iptables-nft -w -t nat -A OUTPUT -p udp --dport 53 -m owner --uid-owner 5678 -j RETURN
iptables-nft -w -t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 15153
`

// TestBesideKuma: UDP is redirected although Kuma's rules assign another conntrack zone, in both
// orders of installation.
func TestBesideKuma(t *testing.T) {
	for name, load := range map[string]func(*netNS){
		"nft": func(n *netNS) { n.run(t, kumaRules, "nft", "-f", "-") },
		"iptables": func(n *netNS) {
			if _, err := exec.LookPath("iptables-nft"); err != nil {
				t.Log("without the rules of iptables-nft, which is not on PATH (Debian: apt-get install iptables)")
				n.run(t, kumaRules, "nft", "-f", "-")
				return
			}
			n.run(t, "", "sh", "-ec", kumaCommands)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			load(w.node)
			before := w.node.rules(t)
			w.install(t, intercept.Spec{DNSPort: 15053})
			p := w.agent(t, w.node)
			p.awaitNext("state=active")
			for _, when := range []string{"installed after Kuma", "installed before Kuma"} {
				for _, network := range []string{"udp", "tcp"} {
					if got := w.node.ask(t, network, outsideV4+":53", "web.mesh", mdns.TypeA); got != outsideV4 {
						t.Errorf("%s, over %s: %s, want %s", when, network, got, outsideV4)
					}
				}
				w.node.run(t, "delete table ip raw\ndelete table ip nat\n", "nft", "-f", "-")
				load(w.node)
			}
			if _, err := intercept.Uninstall(w.ns, w.dir); err != nil {
				t.Fatal(err)
			}
			if after := w.node.rules(t); after != before {
				t.Errorf("the ruleset after\n%s\nis not that from before\n%s", after, before)
			}
		})
	}
}
