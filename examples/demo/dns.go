package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
)

// showNames resolves a name of the mesh with an ordinary client: dig if it is installed, otherwise
// the resolver of Go.
func showNames(ctx context.Context, a *agent, name string) error {
	if err := a.run(ctx, "dns", "table"); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, a.binary, "--socket", a.socket, "dns", "table", name, "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("dns table: %w", err)
	}
	var table struct {
		Listen []string
		Items  []struct{ Addresses []string }
	}
	if err := json.Unmarshal(out, &table); err != nil {
		return err
	}
	if len(table.Listen) == 0 || len(table.Items) != 1 {
		return fmt.Errorf("the agent has no resolver, or %s is not in its table: %s", name, out)
	}
	server, want := table.Listen[0], table.Items[0].Addresses
	got, err := resolve(ctx, server, name)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s resolves to %v, and the table has %v", name, got, want)
	}
	return nil
}

// resolve queries a DNS server for the IPv4 addresses of a name.
func resolve(ctx context.Context, server, name string) ([]string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	if dig, err := exec.LookPath("dig"); err == nil {
		fmt.Printf("    $ dig +short -p %s @%s %s\n", port, host, name)
		out, err := exec.CommandContext(ctx, dig, "+short", "-p", port, "@"+host, name).Output()
		fmt.Printf("    %s", out)
		return strings.Fields(string(out)), err
	}
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
	fmt.Printf("    Go's resolver, sent to %s, looks up %s:\n", server, name)
	addrs, err := r.LookupNetIP(ctx, "ip4", name+".")
	var out []string
	for _, a := range addrs {
		out = append(out, a.Unmap().String())
	}
	fmt.Printf("    %s\n", strings.Join(out, " "))
	return out, err
}
