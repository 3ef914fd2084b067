package intercept_test

import (
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"
	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// TestPrintedIsLoaded checks that the ruleset loaded by Install equals the one that nft loads from
// the printed text.
func TestPrintedIsLoaded(t *testing.T) {
	inbound := whole()
	inbound.Users, inbound.Inbound, inbound.ExcludeInboundPorts = nil, 15006, []uint16{22}
	inbound.ExcludeInboundCIDRs = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("fe80::/10")}
	for name, spec := range map[string]intercept.Spec{
		"DNS":             {DNSPort: 15053},
		"users":           whole(),
		"both directions": inbound,
		"TCP alone":       {Inbound: 15006},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newNetNS(t), newNetNS(t)
			dir := filepath.Join(t.TempDir(), intercept.DirName)
			out, err := intercept.Install(a.open(t), &spec, dir)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := intercept.Plan(&spec)
			if err != nil {
				t.Fatal(err)
			}
			text := plan.Ruleset.String()
			if text != out.Ruleset.String() || len(out.Notes) != 0 {
				t.Errorf("what is printed is not what is said to be loaded; notes %q", out.Notes)
			}
			b.run(t, text, "nft", "-f", "-")
			loaded, printed := a.rules(t), b.rules(t)
			if loaded != printed {
				t.Errorf("loaded:\n%s\nprinted:\n%s", loaded, printed)
			}
			if _, err := intercept.Install(a.open(t), &spec, dir); err != nil {
				t.Fatal(err)
			}
			if second := a.rules(t); second != loaded {
				t.Errorf("installed again:\n%s\nonce:\n%s", second, loaded)
			}
		})
	}
}

// TestForeignRules: other rulesets stay unchanged, and a deleted table is reloaded.
func TestForeignRules(t *testing.T) {
	w := newWorld(t)
	w.node.run(t, foreign, "nft", "-f", "-")
	before := w.node.rules(t)
	w.install(t, intercept.Spec{DNSPort: 15053})
	installed := w.node.rules(t)
	if !strings.HasPrefix(installed, before) {
		t.Errorf("the ruleset\n%s\ndoes not begin with that from before\n%s", installed, before)
	}
	p := w.agent(t, w.node)
	p.awaitNext("state=active")
	// A new installation replaces the current one, and names stay redirected in the meantime.
	done, failed := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(failed)
		for {
			if got := w.node.ask(t, "udp", outsideV4+":53", "web.mesh", mdns.TypeA); got != outsideV4 {
				failed <- got
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	for range 3 {
		w.install(t, intercept.Spec{DNSPort: 15053})
		w.install(t, intercept.Spec{DNSPort: 15053, ExcludeUsers: []uint32{4711}, Inbound: 15006})
	}
	w.install(t, intercept.Spec{DNSPort: 15053})
	close(done)
	for got := range failed {
		t.Errorf("while it is installed again: %s", got)
	}
	if final := regexp.MustCompile(`\t\telements = .*\n`).ReplaceAllString(w.node.rules(t), ""); final != installed {
		t.Errorf("after other installations:\n%s\nafter the first one:\n%s", final, installed)
	}
	w.node.run(t, "flush ruleset\n"+foreign, "nft", "-f", "-")
	p.awaitNext("deleted by another program")
	p.awaitNext("state=active")
	if got := w.redirectedFor(t, -1); got != all {
		t.Errorf("after another program has flushed the ruleset, redirected over %q", got)
	}
	if _, err := intercept.Uninstall(w.ns, w.dir); err != nil {
		t.Fatal(err)
	}
	if after := w.node.rules(t); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// TestTCPRulesStay: a table without DNS is reloaded too, because connections must not bypass the
// Envoy.
func TestTCPRulesStay(t *testing.T) {
	w := newWorld(t)
	w.install(t, intercept.Spec{Outbound: 15001, Inbound: 15006, EnvoyUsers: []uint32{5678}})
	installed := w.node.rules(t)
	p := w.agent(t, w.node)
	p.awaitNext("state=tcp-only")
	w.node.run(t, "", "nft", "flush", "ruleset")
	p.awaitNext("deleted by another program")
	p.awaitNext("state=tcp-only")
	if now := w.node.rules(t); now != installed {
		t.Errorf("loaded again:\n%s\ninstalled:\n%s", now, installed)
	}
	if _, err := intercept.Uninstall(w.ns, w.dir); err != nil {
		t.Fatal(err)
	}
	p.awaitNext("interception was uninstalled")
	if left := w.node.rules(t); left != "" {
		t.Errorf("after it was uninstalled:\n%s", left)
	}
}

// TestLoop: another ruleset redirects the agent's own queries back to it.
func TestLoop(t *testing.T) {
	w := newWorld(t)
	w.node.run(t, "table inet loop {\n\tchain output {\n\t\ttype nat hook output priority -120;\n"+
		"\t\tudp dport 53 redirect to :15053\n\t}\n}\n", "nft", "-f", "-")
	w.install(t, intercept.Spec{DNSPort: 15053})
	p := w.agent(t, w.node)
	p.awaitNext("redirected back to it")
	if rules := w.node.rules(t); strings.Contains(rules, "elements") {
		t.Errorf("the redirection was not ended:\n%s", rules)
	}
	w.node.run(t, "", "nft", "delete", "table", "inet", "loop")
	p.awaitNext("state=active")
}
