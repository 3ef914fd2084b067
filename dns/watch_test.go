package dns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/nearside-mesh/nearside/dns/forward"
)

// Row 61: each kind of file change is noticed. If the file is missing or has no server, the
// previous servers stay.
func testResolvConfIsWatched(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) { // replaces a link
		t.Helper()
		tmp := filepath.Join(dir, name+".tmp")
		if err := os.Symlink(to, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"v1", "v2", "far"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("v1/resolv.conf", "nameserver 127.0.0.11\n")
	write("v2/resolv.conf", "nameserver 127.0.0.12\n")
	link("v1", "..data")
	link("..data/resolv.conf", "resolv.conf")
	own := netip.MustParseAddr("127.0.0.66")
	c := newTester(t, forward.Options{ResolvConf: filepath.Join(dir, "resolv.conf"),
		Own: func(a netip.AddrPort) bool { return a.Addr() == own }})
	servers := func() (out []string) {
		for _, s := range c.f.Stats().Servers {
			out = append(out, s.Addr.Addr().String())
		}
		return out
	}
	is := func(want ...string) {
		t.Helper()
		c.until(fmt.Sprintf("the servers are %v", want), func() bool { return slices.Equal(servers(), want) })
	}
	is("127.0.0.11")
	link("v2", "..data") // like a ConfigMap
	is("127.0.0.12")
	write("v2/resolv.conf", "nameserver 127.0.0.13\nnameserver 127.0.0.14\n") // changed in place
	is("127.0.0.13", "127.0.0.14")
	problem := func(substring string) {
		t.Helper()
		c.until("the problem is "+substring, func() bool { return strings.Contains(c.f.Stats().Problem, substring) })
	}
	write("v2/resolv.conf", "")
	problem("no usable name server")
	write("v2/resolv.conf", "nameserver 127.0.0.66\n")
	problem("127.0.0.66 is ignored: it is an address of this process")
	is("127.0.0.13", "127.0.0.14")
	if err := os.Remove(filepath.Join(dir, "v2/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	problem("no such file")
	is("127.0.0.13", "127.0.0.14")
	write("v2/resolv.conf", "nameserver 127.0.0.15\n")
	is("127.0.0.15")
	write("new", "nameserver 127.0.0.16\n") // renamed over the link
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "resolv.conf")); err != nil {
		t.Fatal(err)
	}
	is("127.0.0.16")
	link(filepath.Join(dir, "far", "stub.conf"), "resolv.conf") // the target does not exist yet
	problem("no such file")
	write("far/stub.conf", "nameserver 127.0.0.17\nnameserver 127.0.0.66\n")
	is("127.0.0.17")
	problem("127.0.0.66 is ignored: it is an address of this process")
}

// A change of servers preserves the cache and the state of servers that stay. Questions in flight
// move to the new servers.
func TestChangeOfServers(t *testing.T) {
	h := newHeld()
	old := newScripted(t, "127.0.0.1:0", h.do)
	next := newScripted(t, "127.0.0.1:0", answerA(t, "60"))
	changes := 0
	c := newTester(t, forward.Options{Changed: func() { changes++ }}, old)
	c.ask(clientKind{}, "kept.example.org", mdns.TypeA)
	h.next(t).Reply(t, 0, []string{"kept.example.org. 60 IN A 192.0.2.7"})
	c.answer()
	c.ask(clientKind{}, "moved.example.org", mdns.TypeA)
	h.next(t)
	c.f.Apply([]netip.AddrPort{next.addr}, forward.Conf{}, "")
	if m := c.answer(); firstA(m) != "192.0.2.1" {
		t.Errorf("the client gets %v", m)
	}
	if got := firstA(c.hit(clientKind{}, "kept.example.org", mdns.TypeA)); got != "192.0.2.7" {
		t.Errorf("the cache has %q", got)
	}
	c.f.Apply([]netip.AddrPort{old.addr, next.addr}, forward.Conf{}, "")
	if st := c.f.Stats(); st.Servers[1].Answers != 1 {
		t.Errorf("what was known of a server that stays is lost: %+v", st.Servers[1])
	}
	if changes != 3 {
		t.Errorf("%d changes were reported, want the first list and two changes", changes)
	}
}
