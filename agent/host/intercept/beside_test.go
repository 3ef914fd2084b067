package intercept_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

	// docker is for the server in a container's resolv.conf.
	docker = `table ip nat {
	chain DOCKER_OUTPUT {
		ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:41577
		ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:41577
	}
	chain OUTPUT {
		type nat hook output priority -100; policy accept;
		ip daddr 127.0.0.11 jump DOCKER_OUTPUT
	}
	chain DOCKER_POSTROUTING {
		ip saddr 127.0.0.11 tcp sport 41577 snat to :53
		ip saddr 127.0.0.11 udp sport 41577 snat to :53
	}
	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 127.0.0.11 jump DOCKER_POSTROUTING
	}
}
`
	// nodeLocal is for the address of NodeLocal DNSCache.
	nodeLocal = `table ip raw {
	chain PREROUTING {
		type filter hook prerouting priority raw; policy accept;
		ip daddr 169.254.20.10 meta l4proto { tcp, udp } th dport 53 notrack
	}
	chain OUTPUT {
		type filter hook output priority raw; policy accept;
		ip saddr 169.254.20.10 meta l4proto { tcp, udp } th sport 53 notrack
		ip daddr 169.254.20.10 meta l4proto { tcp, udp } th dport 53 notrack
	}
}
`
	firewalld = `table inet firewalld {
	chain mangle_PREROUTING {
		type filter hook prerouting priority mangle + 10; policy accept;
		icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
	}
	chain nat_OUTPUT {
		type nat hook output priority -90; policy accept;
	}
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname "lo" accept
		ct state invalid drop
		reject with icmpx admin-prohibited
	}
	chain filter_OUTPUT {
		type filter hook output priority filter + 10; policy accept;
		ct state { established, related } accept
		oifname "lo" accept
		ip6 daddr { ::/96, ::ffff:0.0.0.0/96 } reject with icmpv6 addr-unreachable
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

// TestBesideOthers: the state says whether queries to each server of resolv.conf reach the agent,
// beside the rules of other programs.
func TestBesideOthers(t *testing.T) {
	w := newWorld(t)
	w.node.run(t, "", "ip", "addr", "add", "169.254.20.10/32", "dev", "lo")
	realServer(t, w.node, "169.254.20.10:53", realHosts()...)
	realServer(t, w.node, "127.0.0.11:41577", realHosts()...)
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	names := func(servers string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(servers), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names("")
	program := exec.Command("unshare", "-m", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && echo ready && exec sleep 1000`, conf)
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.node.do(func() { err = program.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = program.Process.Kill(), program.Wait() })
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatalf("unshare: %v", err)
	}
	ns, err := intercept.OpenNamespace(fmt.Sprintf("/proc/%d/ns/net", program.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	p := w.agent(t, w.node)
	for _, c := range []struct {
		name, conf, rules string
		reason            string // why the state is broken; "" if it is active
	}{
		{"no server", "# none\n", "", ""},
		{"servers", "nameserver " + outsideV4 + "\nnameserver " + outsideV6 + "\n", foreign, ""},
		{"no route", "nameserver fd99::1\nnameserver 127.0.0.53\n", "", ""},
		{"link-local", "nameserver fe80::1%eth0\nnameserver 127.0.0.53\n", "", ""},
		{"Kuma", "nameserver " + outsideV4 + "\n", kumaRules, ""},
		{"systemd-resolved", "nameserver 127.0.0.53\noptions edns0 trust-ad\n", "", ""},
		{"firewalld", "nameserver " + outsideV4 + "\n", firewalld, ""},
		{"Docker", "nameserver 127.0.0.11\n", docker, ""},
		{"NodeLocal DNSCache", "nameserver 169.254.20.10\n", nodeLocal, "ask 169.254.20.10:53 over tcp"},
		{"NOTRACK", "nameserver " + outsideV4 + "\n", "table inet raw {\n\tchain output {\n\t\ttype filter hook output " +
			"priority raw;\n\t\tmeta l4proto { tcp, udp } th dport 53 notrack\n\t}\n}\n", "over tcp"},
		{"another resolver", "nameserver 127.0.0.53\nnameserver " + outsideV4 + "\n",
			"table ip other {\n\tchain output {\n\t\t" +
				"type nat hook output priority -150;\n\t\tip daddr " + outsideV4 + " tcp dport 53 dnat to 127.0.0.53\n\t}\n}\n",
			"ask " + outsideV4 + ":53 over tcp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names(c.conf)
			w.node.run(t, c.rules, "nft", "-f", "-")
			before := w.node.rules(t)
			if _, err := intercept.Install(ns, &intercept.Spec{DNSPort: 15053}, w.dir); err != nil {
				t.Fatal(err)
			}
			state := intercept.StateActive
			if c.reason != "" {
				state = intercept.StateBroken
			}
			p.awaitNext("state=" + state)
			r, err := intercept.Inspect(t.Context(), ns, w.dir)
			if err != nil || r.State != state || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("state %s, want %s for %q; %v: %s", r.State, state, c.reason, err, r.Reason)
			}
			for server := range strings.FieldsSeq(c.conf) {
				if a, err := netip.ParseAddr(server); err == nil && a.Zone() == "" &&
					!slices.ContainsFunc(r.Canaries, func(x intercept.Canary) bool {
						return x.Server == netip.AddrPortFrom(a, 53).String()
					}) {
					t.Errorf("no canary was sent to %s: %+v", server, r.Canaries)
				}
			}
			if _, err := intercept.Uninstall(ns, w.dir); err != nil {
				t.Fatal(err)
			}
			p.awaitNext("interception was uninstalled")
			if after := w.node.rules(t); after != before {
				t.Errorf("the ruleset after\n%s\nis not that from before\n%s", after, before)
			}
			w.node.run(t, "flush ruleset\n", "nft", "-f", "-")
		})
	}
}

// TestEarlierVersion: an agent reloads the table of an earlier version, whose zone chain has the
// priority of Kuma's rules.
func TestEarlierVersion(t *testing.T) {
	w := newWorld(t)
	out := w.install(t, intercept.Spec{DNSPort: 15053})
	installed := w.node.rules(t)
	w.node.run(t, strings.Replace(out.Ruleset.String(), "priority -310", "priority raw", 1), "nft", "-f", "-")
	if w.node.rules(t) == installed {
		t.Fatal("the ruleset of the earlier version equals the current one")
	}
	p := w.agent(t, w.node)
	p.awaitNext("reloaded the rules of an earlier version")
	p.awaitNext("state=active")
	elements := regexp.MustCompile(`\t\telements = .*\n`)
	sorted := func(rules string) []string { return slices.Sorted(strings.Lines(elements.ReplaceAllString(rules, ""))) }
	if rules := w.node.rules(t); !slices.Equal(sorted(rules), sorted(installed)) {
		t.Errorf("reloaded:\n%s\ninstalled:\n%s", rules, installed)
	}
}
