package intercept_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
)

// servers returns the name servers of the clients.
func servers() []string {
	return []string{outsideV4 + ":53", "[" + outsideV6 + "]:53", "127.0.0.53:53"}
}

// foreign is a ruleset of another program with connection tracking.
const foreign = `table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		iifname "lo" accept
		ct state established,related accept
		meta l4proto ipv6-icmp accept
	}
}
table ip nat {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "docker0" masquerade
	}
}
`

// TestNames checks lookups before, during, and after an installation.
func TestNames(t *testing.T) {
	w := newWorld(t)
	w.node.run(t, foreign, "nft", "-f", "-")
	before := w.node.run(t, "", "nft", "list", "ruleset")
	everywhere := func(mesh, when string) {
		t.Helper()
		for _, server := range servers() {
			for _, network := range []string{"udp", "tcp"} {
				if got := w.node.ask(t, network, server, "web.mesh", mdns.TypeA); got != mesh {
					t.Errorf("%s: web.mesh by %s over %s: %s, want %s", when, server, network, got, mesh)
				}
				if got := w.node.ask(t, network, server, "real.example", mdns.TypeAAAA); got != realV6 {
					t.Errorf("%s: real.example by %s over %s: %s, want %s", when, server, network, got, realV6)
				}
			}
		}
	}
	var open []*mdns.Conn // sockets that stay open during the test
	for _, server := range servers() {
		open = append(open, w.node.socket(t, "udp", server))
	}
	sockets := func(mesh, when string) {
		t.Helper()
		for i, c := range open {
			if got := lookup(c, "web.mesh", mdns.TypeA); got != mesh {
				t.Errorf("%s: web.mesh over an open socket to %s: %s, want %s", when, servers()[i], got, mesh)
			}
		}
	}
	stream := w.node.socket(t, "tcp", outsideV4+":53")
	if got := lookup(stream, "web.mesh", mdns.TypeA); got != "NXDOMAIN" {
		t.Fatalf("before: %s over TCP", got)
	}
	everywhere("NXDOMAIN", "before")
	sockets("NXDOMAIN", "before")

	if out := w.install(t, intercept.Spec{DNSPort: 15053}); out.Ended != 1 {
		t.Errorf("%d open connections were ended, want 1", out.Ended)
	}
	everywhere("NXDOMAIN", "without an agent")
	p := w.agent(t, w.node)
	p.await("state=active", 0)
	everywhere(outsideV4, "redirected")
	sockets(outsideV4, "redirected")
	if got := lookup(stream, "web.mesh", mdns.TypeA); got == "NXDOMAIN" {
		t.Error("a connection over TCP from before still has its old path")
	}
	if other := w.node.ask(t, "udp", otherV4+":5353", "web.mesh", mdns.TypeA); !strings.Contains(other, "refused") {
		t.Errorf("a query to another port: %s", other)
	}

	t.Run("killed", func(t *testing.T) {
		start := time.Now()
		p.stop(syscall.SIGKILL)
		for _, c := range open {
			for wait, late := 100*time.Millisecond, 0; ; {
				if time.Since(start) > 3*time.Second {
					wait, late = patience, late+1 // a busy machine may answer this query late
				}
				got := lookupWithin(wait, c, "web.mesh", mdns.TypeA)
				if got == "NXDOMAIN" {
					break
				}
				if late == 3 { // the first one may get the error of an earlier query
					t.Fatalf("3 s after the kill, the real servers get no queries: %s", got)
				}
			}
		}
		t.Logf("the real servers answered %v after the kill", time.Since(start).Round(time.Millisecond))
		everywhere("NXDOMAIN", "killed")
	})

	p = w.agent(t, w.node)
	p.await("state=active", 0)
	everywhere(outsideV4, "started again")
	sockets(outsideV4, "started again")

	t.Run("stopped", func(t *testing.T) {
		stopped := make(chan struct{})
		go func() { defer close(stopped); p.stop(syscall.SIGTERM) }()
		for n := 0; ; n++ {
			if got := w.node.ask(t, "udp", outsideV4+":53", "real.example", mdns.TypeA); got != realV4 {
				t.Errorf("look-up %d while the agent stops: %s", n, got)
			}
			select {
			case <-stopped:
				everywhere("NXDOMAIN", "stopped")
				return
			default:
			}
		}
	})

	p = w.agent(t, w.node)
	line := p.await("state=active", 0)
	everywhere(outsideV4, "started once more")
	if was, err := intercept.Uninstall(w.ns, w.dir); err != nil || !was {
		t.Fatalf("uninstall: %v, %v", was, err)
	}
	p.await("interception was uninstalled", line)
	everywhere("NXDOMAIN", "uninstalled")
	sockets("NXDOMAIN", "uninstalled")
	if after := w.node.run(t, "", "nft", "list", "ruleset"); after != before {
		t.Errorf("the ruleset after\n%s\nis not that from before\n%s", after, before)
	}
	for _, entry := range w.node.entries(t, " dport=53 ") {
		if strings.Contains(entry, " sport=15053 ") {
			t.Errorf("conntrack still redirects: %s", entry)
		}
	}
	if left, err := os.ReadDir(w.dir); err != nil || len(left) != 1 || left[0].Name() != ".lock" {
		t.Errorf("left in the directory of records: %v, %v", left, err)
	}
	if was, err := intercept.Uninstall(w.ns, w.dir); err != nil || was {
		t.Errorf("uninstalled twice: %v, %v", was, err)
	}
}

// TestPrograms: programs that are unaware of the redirection resolve names.
func TestPrograms(t *testing.T) {
	w := newWorld(t)
	w.install(t, intercept.Spec{DNSPort: 15053})
	p := w.agent(t, w.node)
	p.await("state=active", 0)
	musl := muslProgram(t)
	for _, conf := range []string{
		"nameserver " + outsideV4, "nameserver " + outsideV6, "nameserver 127.0.0.53",
		"nameserver " + outsideV4 + "\noptions use-vc", "nameserver " + outsideV6 + "\noptions use-vc",
	} {
		conf += "\n"
		for _, family := range []struct{ database, mesh, real string }{
			{"ahostsv4", outsideV4, realV4}, {"ahostsv6", outsideV6, realV6},
		} {
			for name, want := range map[string]string{"web.mesh": family.mesh, "real.example": family.real} {
				if out, err := w.node.with(t, conf, "getent", family.database, name); err != nil ||
					!strings.Contains(out, want+" ") {
					t.Errorf("getent %s %s with %q: %v: %s, want %s", family.database, name, conf, err, out, want)
				}
			}
		}
		if musl != "" && !strings.Contains(conf, "use-vc") {
			if out, err := w.node.with(t, conf, musl, "web.mesh"); err != nil || strings.TrimSpace(out) != outsideV4 {
				t.Errorf("a program with musl and %q: %v: %s", conf, err, out)
			}
		}
	}
	t.Run("curl", func(t *testing.T) {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skip("skipped: curl is not on PATH")
		}
		w.outside.serveHTTP(t, outsideV4+":8080", "hello of the mesh")
		if out, err := w.node.with(t, "nameserver "+outsideV4+"\n", "curl", "-sS4m5", "http://web.mesh:8080/"); err != nil ||
			out != "hello of the mesh" {
			t.Errorf("curl: %v: %s", err, out)
		}
	})
	t.Run("killed", func(t *testing.T) {
		p.stop(syscall.SIGKILL)
		for name, args := range map[string][]string{
			"glibc": {"getent", "ahostsv4", "real.example"},
			"musl":  {musl, "real.example"},
		} {
			if args[0] == "" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				if out, err := w.node.with(t, "nameserver "+outsideV4+"\n", args[0], args[1:]...); err != nil ||
					!strings.Contains(out, realV4) {
					t.Errorf("a look-up that began after the kill: %v: %s", err, out)
				}
			})
			second := w.agent(t, w.node) // for the other program
			second.await("state=active", 0)
			second.stop(syscall.SIGKILL)
		}
	})
	t.Run("musl", func(t *testing.T) {
		if musl == "" {
			t.Skip("skipped: musl-gcc is not on PATH (Debian: apt-get install musl-tools)")
		}
	})
}

// muslProgram compiles a program that prints the first IPv4 address of a name. It returns ""
// without a compiler.
func muslProgram(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("musl-gcc"); err != nil {
		return ""
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "lookup.c"), filepath.Join(dir, "lookup")
	if err := os.WriteFile(source, []byte(`#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *a;
	int err = getaddrinfo(argv[1], 0, &hints, &a);
	if (err) { puts(gai_strerror(err)); return 1; }
	char text[64];
	puts(inet_ntop(AF_INET, &((struct sockaddr_in *)a->ai_addr)->sin_addr, text, sizeof text));
}
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("musl-gcc", "-static", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("musl-gcc: %v: %s", err, out)
	}
	return program
}
