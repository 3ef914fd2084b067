package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

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
	command.MeshFilter(env, cmd, "list only the names of this mesh")
	format := command.OutputFlag(cmd, "table", "wide", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := strings.Join(args, "")
		d, err := env.Client().DNS(cmd.Context(), env.Mesh, name, -1)
		return command.Show(env, *format, func(w io.Writer, d *api.DNS) { text.DNSTable(w, env.Stderr, d, *format) },
			func(d *api.DNS) bool { return name != "" && len(d.Items) == 0 })(d, err)
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
