package proxies

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func explainDNSCommand(env *command.Env) *cobra.Command {
	var files command.FileFlags
	var q explain.DNSQuestion
	var ndots int
	cmd := &cobra.Command{
		Use:   "dns NAME [--dataplane NAME]",
		Short: "Say why a name resolves as it does",
		Long: `Follows a name through the resolver of the agent: the names that a client asks for, one after the other, with the search list and
ndots of its resolv.conf (without --search and --ndots those of the agent's), and what becomes of each: who has it and because of
what, who else wants it and why he does not have it, or that it is below a suffix of the meshes and does not exist, or that upstreams
are asked.

With --dataplane it is said what the workload of this dataplane is told, and whether its proxy leads from the address to the
service.

The exit code is 0 when the name resolves or upstreams are asked, and 2 when there is no such name or it has no address. With -f
the answer is computed from these resources alone, all their meshes, without any agent and by the same code; the zone is then
NEARSIDE_NODE_ZONE, and NEARSIDE_DNS_REACHABLEONLY=true stands for dns.reachableOnly.`,
		Example: `  nearside explain dns backend.mesh
  nearside explain dns backend --dataplane web --search default.svc.cluster.local,mesh --ndots 5
  nearside explain dns backend.svc.mesh.local --dataplane web -f resources/ -o json`,
		Args: command.Args(1, 1, "NAME"),
	}
	command.MeshFlag(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	cmd.Flags().StringVar(&q.Dataplane, "dataplane", "", "name of the dataplane whose workload asks")
	cmd.Flags().StringSliceVar(&q.Search, "search", nil, "search list of the client")
	cmd.Flags().IntVar(&ndots, "ndots", 1, "dots from which on the client tries a name as it is first")
	command.CompleteDataplanes(env, cmd, "dataplane", &env.Mesh)
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name, q.Mesh = args[0], env.Mesh
		if cmd.Flags().Changed("ndots") {
			q.Ndots = &ndots
		}
		x, err := command.Answer(env, &files, func() (*explain.DNS, error) {
			return env.Client().ExplainDNS(cmd.Context(), q)
		}, func(o *offline.Offline, zone string) (*explain.DNS, []string, error) {
			x, err := o.ExplainDNS(zone, q)
			return x, nil, err
		})
		return command.Show(env, *format, func(p0 *explain.DNS) error { return dnsText(env, p0) },
			func(x *explain.DNS) bool {
				return x.Verdict != explain.DNSResolves && x.Verdict != explain.DNSForwarded
			})(x, nameError(err))
	}
	return cmd
}

// nameError is [flowError] for a question whose name is an argument.
func nameError(err error) error {
	err = flowError(err)
	if u, ok := err.(*command.ExitError); ok && strings.HasPrefix(u.Error(), "--name: ") {
		return command.Usagef("%s", strings.TrimPrefix(u.Error(), "--name: "))
	}
	return err
}

// dnsText writes why a name resolves as it does for people.
func dnsText(env *command.Env, x *explain.DNS) error {
	w, c := env.Stdout, &x.Client
	text.Printf(w, "%s: %s\n", x.Verdict, x.Reason)
	if c.Dataplane != nil {
		sees := "all names"
		if !c.All {
			sees = "the names of services that the dataplane reaches"
		}
		asks := ""
		if c.Address != "" {
			asks = " asks from " + c.Address + " and"
		}
		text.Printf(w, "  client     %s%s is told %s, with %s addresses\n", c.Dataplane.String(), asks, sees,
			strings.Join(c.Families, " and "))
	}
	if c.Note != "" {
		text.Printf(w, "             %s\n", c.Note)
	}
	if len(c.Search) > 0 {
		text.Printf(w, "  search     %s, ndots %d\n", strings.Join(c.Search, " "), c.Ndots)
	}
	for i := range x.Steps {
		s := &x.Steps[i]
		text.Printf(w, "  asks for   %s -> %s: %s\n", s.Name, s.Outcome, s.Reason)
		for _, r := range s.Records {
			text.Printf(w, "             %s %s\n", r.Type, r.Data)
		}
		if s.Owner != nil {
			for _, o := range s.Owner.Contested {
				text.Printf(w, "             not for %s: %s\n", text.Claimant(o), o.Why)
			}
		}
		if r := s.Reachable; r != nil {
			leads := "its proxy leads there"
			if !r.Reachable {
				leads = "its proxy does not lead there"
			}
			text.Printf(w, "             %s\n", fmt.Sprintf("%s: %s", leads, r.Reason))
		}
	}
	return nil
}
