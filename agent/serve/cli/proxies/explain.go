package proxies

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/answer/explaindns"
	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func explainCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "explain",
		Short: "Say why a proxy behaves as it does",
		Example: "  nearside explain connection --from web --to backend:80\n" +
			"  nearside explain policy meshtimeout/slow --dataplane web",
	}, explainConnectionCommand(env), explainRequestCommand(env), explainPolicyCommand(env),
		explainDNSCommand(env))
}

func explainPolicyCommand(env *command.Env) *cobra.Command {
	var files command.FileFlags
	var dataplane, backend string
	cmd := &cobra.Command{
		Use:   "policy TYPE/NAME --dataplane NAME",
		Short: "Say what a policy does on a dataplane, or why it does nothing",
		Long: `Says whether a policy selects a dataplane, which of its fields are in force on which inbounds and outbounds, what
has overridden the others, and what is without effect. When the policy does not act on the dataplane, it says why not.

Where permissions restrict what proxies reach, a permission is told with the services that the dataplane reaches by it or
not, and --backend adds what decides about one service.

The exit code is 0 when the policy is selected and 2 when it is not. With -f the answer is computed from these resources
alone, without any agent and by the same code; the zone is then NEARSIDE_NODE_ZONE.`,
		Example: `  nearside explain policy meshtimeout/slow --dataplane web
  nearside explain policy mt slow --dataplane web -m shop -o json
  nearside explain policy mt/slow --dataplane web -f resources/`,
		Args: command.Args(1, 2, "TYPE/NAME or TYPE NAME"),
	}
	command.ResourceFlags(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	command.DataplaneFlag(env, cmd, &dataplane, "name of the dataplane; required")
	cmd.Flags().StringVar(&backend, "backend", "",
		"service of which is said whether the dataplane reaches it: NAME, KIND/NAME or KIND/NAME:PORT")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dataplane == "" {
			return command.Usagef("--dataplane is required")
		}
		var r command.Reference
		var err error
		if len(files.Paths) > 0 {
			r, err = command.ResolveAmong(env, args, func() ([]api.Kind, error) { return offline.Kinds(), nil })
		} else {
			r, err = command.Resolve(cmd.Context(), env, args)
		}
		if err != nil {
			return err
		}
		if !r.Kind.Policy {
			return command.Usagef("%s is not a policy kind", r.Kind.Kind)
		}
		q := explain.PolicyQuestion{Type: r.Kind.Kind, Mesh: env.Mesh, Name: r.Name, Dataplane: dataplane, Backend: backend}
		return command.Show(env, *format, func(w io.Writer, x *explain.Policy) {
			text.PolicyExplanation(w, x)
			if x.Reach != nil {
				text.Println(w)
				text.Reach(w, x.Reach, backend)
			}
		}, func(x *explain.Policy) bool { return !x.Selected })(command.Explain(cmd.Context(), env, &files, q,
			(*client.Client).ExplainPolicy, (*offline.Offline).ExplainPolicy))
	}
	return cmd
}

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
	command.DataplaneFlag(env, cmd, &q.Dataplane, "name of the dataplane whose workload asks")
	cmd.Flags().StringSliceVar(&q.Search, "search", nil, "search list of the client")
	cmd.Flags().IntVar(&ndots, "ndots", 1, "dots from which on the client tries a name as it is first")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Name, q.Mesh = args[0], env.Mesh
		if cmd.Flags().Changed("ndots") {
			q.Ndots = &ndots
		}
		x, err := command.Explain(cmd.Context(), env, &files, q, (*client.Client).ExplainDNS, (*offline.Offline).ExplainDNS)
		return command.Show(env, *format, text.DNSExplanation, func(x *explaindns.DNS) bool {
			return x.Verdict != explaindns.DNSResolves && x.Verdict != explaindns.DNSForwarded
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
