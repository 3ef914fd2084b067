package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func dnsCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "dns",
		Short:   "Query the agent's resolver, and list its names",
		Example: "  nearside dns lookup backend.mesh\n  nearside dns table",
	}, dnsLookupCommand(env), dnsTableCommand(env))
}

func dnsTableCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "table [NAME]",
		Short: "List the mesh names that the resolver answers",
		Long: `Lists the names that the agent's resolver answers from its own table, for all meshes or with -m for
one mesh: addresses, ports of SRV records, the service, and the source of the name. The source is
the status of a resource, a HostnameGenerator, or a tag.

Names that several services claim, and the suffixes that belong to the meshes, follow the table.
Other names below such a suffix do not exist.

The exit code is 2 if NAME is given and not in the table.`,
		Example: "  nearside dns table\n  nearside dns table backend.mesh -o yaml\n  nearside dns table -m shop -o name",
		Args:    command.Args(0, 1, "at most one NAME"),
	}
	command.MeshFlag(env, cmd)
	cmd.Flags().Lookup("mesh").Usage = "list only the names of this mesh"
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		mesh, name := "", strings.Join(args, "")
		if cmd.Flags().Changed("mesh") {
			mesh = env.Mesh
		}
		return command.Show(env, *format, func(w io.Writer, d *api.DNS) { text.DNSTable(w, env.Stderr, d, *format) },
			func(d *api.DNS) bool { return name != "" && len(d.Items) == 0 })(env.Client().DNS(cmd.Context(), mesh, name, -1))
	}
	return cmd
}

// resolverAddress returns an address at which this host reaches the agent's resolver.
func resolverAddress(ctx context.Context, env *command.Env) (string, *api.DNS, error) {
	d, err := env.Client().DNS(ctx, "", "", 0)
	if err != nil {
		return "", nil, err
	}
	if len(d.Listen) == 0 {
		return "", d, errors.New("the agent has no resolver: " + d.Reason)
	}
	at, err := netip.ParseAddrPort(d.Listen[0])
	if err != nil {
		return "", d, fmt.Errorf("the agent reports an invalid resolver address: %w", err)
	}
	switch addr := at.Addr(); {
	case addr.IsUnspecified() && addr.Is4():
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	case addr.IsUnspecified():
		at = netip.AddrPortFrom(netip.IPv6Loopback(), at.Port())
	}
	return at.String(), d, nil
}

// checkDNS queries the resolver's canary name, which only this agent answers, over UDP and TCP.
func checkDNS(ctx context.Context, env *command.Env, t *selfTest) {
	server, d, err := resolverAddress(ctx, env)
	switch {
	case d == nil:
		t.add(checkWarn, "dns", "run this command as a user who may read /v1/dns", "%v", err)
		return
	case err != nil && d.Reason == "dns.listen is empty":
		t.add(CheckOK, "dns", "", "the resolver is off: dns.listen is empty")
		return
	case err != nil:
		t.add(checkWarn, "dns", "the reason says what to do; see docs/dns.md", "%v", err)
		return
	}
	for _, network := range [...]string{"udp", "tcp"} {
		got, err := lookup(ctx, server, network, d.Canary, "A")
		switch {
		case err != nil:
			t.add(checkFail, "dns", "check the log of the agent, and the firewalls of this host",
				"the resolver on %s does not answer over %s: %v", server, network, err)
			return
		case len(got.Answers) != 1 || got.Answers[0].Data != d.CanaryAddress.String():
			t.add(checkFail, "dns", "another program may listen on dns.listen: check with ss -lnup, and use another port",
				"the server on %s over %s is not this agent: the answer for %s is %s with %s",
				server, network, d.Canary, got.Rcode, plural.Count(len(got.Answers), "record"))
			return
		}
	}
	switch {
	case d.State != api.DNSServing:
		t.add(checkWarn, "dns", "the reason says what to do; see docs/dns.md", "%s", d.Reason)
	case d.QueryLog != nil && d.QueryLog.Problem != "":
		t.add(checkWarn, "dns", "the reason says what to do", "%s", d.QueryLog.Problem)
	default:
		t.add(CheckOK, "dns", "", "the resolver answers over UDP and TCP on %s, %s", server, plural.Count(d.Names, "name"))
	}
	switch {
	case d.Holder == "":
		t.add(checkWarn, "dns-sockets", "check the log of the agent; docs/dns.md says what can hold the sockets",
			"nothing holds the sockets while the agent is down: lookups then fail, or go to the real servers if they are "+
				"redirected")
	default:
		t.add(CheckOK, "dns-sockets", "", "%s holds the sockets while the agent is down", d.Holder)
	}
	switch {
	case d.Problem != "":
		t.add(checkWarn, "dns-upstreams", "set dns.upstreams, or fix resolv.conf; see docs/dns.md", "%s", d.Problem)
	default:
		t.add(CheckOK, "dns-upstreams", "", "other names go to %s",
			strings.Join(text.Each(d.Upstreams, func(u api.DNSUpstream) string { return u.Address }), ", "))
	}
}
