package intercept_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/nearside-mesh/nearside/agent/host/intercept"
	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

// Variables that make the test binary run as another program.
const (
	asAgent     = "INTERCEPT_TEST_AGENT"   // the directory of records
	asInstaller = "INTERCEPT_TEST_INSTALL" // the directory of records
	resolvConf  = "INTERCEPT_TEST_RESOLV"  // for the agent
	inNetns     = "INTERCEPT_TEST_NETNS"   // for the installer; "" for its own namespace
	ownPort     = "INTERCEPT_TEST_PORT"    // port of the agent in its own namespace; 0 for none
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(asAgent); dir != "" {
		if err := runAgent(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(asInstaller); dir != "" {
		n, err := intercept.OpenNamespace(os.Getenv(inNetns))
		if err == nil {
			_, err = intercept.Install(n, &intercept.Spec{DNSPort: 15053}, dir)
		}
		fmt.Println("error:", err)
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			fmt.Println("hint:", hinted.Hint())
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// meshHosts returns the mesh that the agent knows.
func meshHosts() []table.Host {
	return []table.Host{
		{Name: "web.mesh", Addrs: []netip.Addr{netip.MustParseAddr(outsideV4), netip.MustParseAddr(outsideV6)}},
		intercept.CanaryHost(),
	}
}

// runAgent runs the resolver and the renewer like an agent, until SIGTERM. It logs to standard
// output.
func runAgent(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	o := forward.Options{ResolvConf: os.Getenv(resolvConf), CacheBytes: -1, Mark: intercept.Mark, Logger: log}
	fwd, err := forward.New(o)
	if err != nil { // setting the mark may not be permitted
		o.Mark = 0
		fwd, err = forward.New(o)
	}
	if err != nil {
		return err
	}
	s := dns.NewServer(dns.ServerOptions{Forwarder: fwd, Logger: log})
	names, errs := table.New(table.Options{Suffixes: []string{"mesh"}}, meshHosts())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.Swap(table.NewAnswers(names, nil))
	serving, end := context.WithCancel(context.Background())
	defer end()
	var wg sync.WaitGroup
	wg.Go(func() { _ = fwd.Run(serving) })
	if port, _ := strconv.Atoi(os.Getenv(ownPort)); port != 0 {
		udp, tcp, err := dns.Listen(serving, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port)), 2)
		if err != nil {
			return err
		}
		for _, c := range udp {
			wg.Go(func() { _ = s.ServeUDP(serving, c) })
		}
		wg.Go(func() { _ = s.ServeTCP(serving, tcp) })
	}
	err = intercept.NewRenewer(intercept.RenewerOptions{Dir: dir, Resolver: s, Log: log}).Run(ctx)
	end() // end the redirection before the resolver
	wg.Wait()
	return err
}

// realServer is a name server outside the mesh.
func realServer(t testing.TB, n *netNS, at string, hosts ...table.Host) {
	t.Helper()
	names, errs := table.New(table.Options{Suffixes: []string{"mesh", "invalid", "example"}, TTL: 1}, hosts)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s := dns.NewServer(dns.ServerOptions{})
	s.Swap(table.NewAnswers(names, nil))
	var udp []*net.UDPConn
	var tcp net.Listener
	n.do(func() {
		var err error
		if udp, tcp, err = dns.Listen(t.Context(), netip.MustParseAddrPort(at), 1); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.ServeUDP(ctx, udp[0]) })
	wg.Go(func() { _ = s.ServeTCP(ctx, tcp) })
	t.Cleanup(func() { stop(); wg.Wait() })
}
