// Command dnsserve answers DNS without an agent, for measurements.
//
//	go build -o dnsserve ./dns/testdata/dnsserve
//	dnsserve -addr 127.0.0.1:5300 -hosts hosts.txt -suffix mesh.local
//	dnsserve -addr 127.0.0.1:5300 -upstream 127.0.0.1:5301
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/nearside-mesh/nearside/dns"
	"github.com/nearside-mesh/nearside/dns/forward"
	"github.com/nearside-mesh/nearside/dns/table"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:5300", "address to answer on")
	hosts := flag.String("hosts", "", "a file of lines ADDRESS NAME")
	suffix := flag.String("suffix", "", "a suffix below which there is nothing but the names of the file")
	upstream := flag.String("upstream", "", "address and port of the server that is asked for the rest")
	sockets := flag.Int("sockets", 1, "sockets for UDP")
	flag.Parse()
	if err := run(*addr, *hosts, *suffix, *upstream, *sockets); err != nil {
		fmt.Fprintln(os.Stderr, "dnsserve:", err)
		os.Exit(1)
	}
}

func run(addr, hosts, suffix, upstream string, sockets int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	var o dns.ServerOptions
	var wg sync.WaitGroup
	defer wg.Wait()
	if upstream != "" {
		to, err := netip.ParseAddrPort(upstream)
		if err != nil {
			return err
		}
		if o.Forwarder, err = forward.New(forward.Options{Servers: []netip.AddrPort{to}}); err != nil {
			return err
		}
		wg.Go(func() { _ = o.Forwarder.Run(ctx) })
	}
	names, err := read(hosts, suffix)
	if err != nil {
		return err
	}
	s := dns.NewServer(o)
	s.Swap(table.NewAnswers(names, nil))
	udp, tcp, err := dns.Listen(ctx, at, sockets)
	if err != nil {
		return err
	}
	for _, c := range udp {
		wg.Go(func() { _ = s.ServeUDP(ctx, c) })
	}
	return s.ServeTCP(ctx, tcp)
}

func read(file, suffix string) (*table.Table, error) {
	var o table.Options
	if suffix != "" {
		o.Suffixes = []string{suffix}
	}
	var hosts []table.Host
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			ip, name, _ := strings.Cut(lines.Text(), " ")
			a, err := netip.ParseAddr(ip)
			if err != nil {
				return nil, err
			}
			hosts = append(hosts, table.Host{Name: name, Addrs: []netip.Addr{a}})
		}
	}
	t, errs := table.New(o, hosts)
	for _, err := range errs {
		return nil, err
	}
	return t, nil
}
