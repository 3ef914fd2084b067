package netsock_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nearside-mesh/nearside/agent/host/netsock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inNamespace returns a function that runs others on a thread in a new network namespace, where nft
// has loaded rules.
func inNamespace(t testing.TB, rules string) func(func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: network namespaces and nftables need root")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %s is not on PATH (Debian: apt-get install iproute2 nftables)", tool)
		}
	}
	work, ended := make(chan func()), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the thread ends with the goroutine
		for f := range work {
			f()
		}
	}()
	t.Cleanup(func() { close(work); <-ended })
	do := func(f func() error) (err error) {
		done := make(chan struct{})
		work <- func() { defer close(done); err = f() }
		<-done
		return err
	}
	if err := do(func() error { return unix.Unshare(unix.CLONE_NEWNET) }); err != nil {
		t.Skipf("skipped: a network namespace cannot be made: %v", err)
	}
	err := do(func() error {
		cmd := exec.Command("sh", "-ec", "ip link set lo up; ip addr add fd53::53/128 dev lo; nft -f -")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil && strings.Contains(err.Error(), "not supported") {
		t.Skipf("skipped: the kernel lacks what the rules need: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return do
}

const (
	zone     = 0x6e73
	redirect = `table inet test {
	chain dns_zone {
		type filter hook output priority -310;
		udp dport 53 ct zone set 0x6e73
		oifname lo udp sport 5300 ct zone set 0x6e73
		oifname lo udp dport 5300 ct zone set 0x6e73
	}
	chain output {
		type nat hook output priority -110;
		meta mark 0x3073 return
		udp dport 53 redirect to :5300
		tcp dport 53 redirect to :5300
	}
}
`
)

// query sends a datagram to a server, and returns the client's address as the listener sees it.
func query(t testing.TB, do func(func() error) error, at, server string) (client, local netip.AddrPort) {
	t.Helper()
	err := do(func() error {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := net.Dial("udp", server)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		_, client, err = l.ReadFromUDPAddrPort(make([]byte, 10))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), netip.MustParseAddrPort(at)
}

// TestOriginal: conntrack has the server of redirected queries, and lookups allocate nothing.
func TestOriginal(t *testing.T) {
	do := inNamespace(t, redirect)
	n, err := netsock.Open(netsock.Options{Name: "pod", Do: do, Mark: 0x3073, Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ at, server string }{
		{"127.0.0.1:5300", "127.0.0.11:53"}, {"[::1]:5300", "[fd53::53]:53"}, {"127.0.0.1:5300", "127.0.0.1:5300"},
	} {
		client, local := query(t, do, tc.at, tc.server)
		if got, err := n.Original(false, client, local); err != nil || got.String() != tc.server {
			t.Errorf("%s: %v, %v", tc.server, got, err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = n.Original(false, client, local) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		other := netip.AddrPortFrom(client.Addr(), client.Port()^1)
		if got, err := n.Original(false, other, local); err == nil {
			t.Errorf("another client: %v", got)
		}
		if got, err := n.Original(true, client, local); err == nil {
			t.Errorf("another protocol: %v", got)
		}
		n.Close()
		if got, err := n.Original(false, client, local); err == nil {
			t.Errorf("after Close: %v", got)
		}
		if n, err = netsock.Open(netsock.Options{Name: "pod", Do: do, Mark: 0x3073, Zone: zone}); err != nil {
			t.Fatal(err)
		}
	}
	n.Close()
}

// TestConnect: sockets are in the namespace, and the redirection exempts them.
func TestConnect(t *testing.T) {
	do := inNamespace(t, redirect)
	n, err := netsock.Open(netsock.Options{Name: "pod", Do: do, Mark: 0x3073, Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var l net.Listener
	if err := do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.11:53"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, network := range []string{"udp", "tcp"} {
		f, err := n.Connect(network, netip.MustParseAddrPort("127.0.0.11:53"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// BenchmarkOriginal measures a lookup in a table with one entry.
func BenchmarkOriginal(b *testing.B) {
	do := inNamespace(b, redirect)
	n, err := netsock.Open(netsock.Options{Name: "pod", Do: do, Mark: 0x3073, Zone: zone})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	client, local := query(b, do, "127.0.0.1:5300", "127.0.0.11:53")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Original(false, client, local); err != nil {
			b.Fatal(err)
		}
	}
}
