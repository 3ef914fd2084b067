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
		Short: "Explain why a proxy behaves as it does",
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
		Short: "Explain the effect of a policy on a dataplane",
		Long: `Explains whether a policy selects a dataplane, which of its fields are in force on which inbounds
and outbounds, which policies override the others, and which fields have no effect. If the policy
does not act on the dataplane, the output says why.

If permissions restrict what proxies reach, the explanation of a permission includes the services
that the dataplane reaches because of it. --backend explains the decision for one service.

The exit code is 0 if the policy is selected, and 2 if it is not. With -f, the answer comes only
from these resources, without an agent; NEARSIDE_NODE_ZONE sets the zone.`,
		Example: `  nearside explain policy meshtimeout/slow --dataplane web
  nearside explain policy mt slow --dataplane web -m shop -o json
  nearside explain policy mt/slow --dataplane web -f resources/`,
		Args: command.Args(1, 2, "TYPE/NAME or TYPE NAME"),
	}
	command.ResourceFlags(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	command.DataplaneFlag(env, cmd, &dataplane, "name of the dataplane (required)")
	cmd.Flags().StringVar(&backend, "backend", "",
		"also explain whether the dataplane reaches this service: NAME, KIND/NAME, or KIND/NAME:PORT")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dataplane == "" {
			return command.Usagef("--dataplane is required")
		}
		err := command.AdoptMesh(env, args)
		if err == nil {
			dataplane, err = command.DataplaneName(cmd.Context(), env, &files, dataplane)
		}
		if err != nil {
			return err
		}
		var r command.Reference
		if len(files.Paths) > 0 {
			r, err = command.ResolveAmong(cmd.Context(), env, &files, args,
				func() ([]api.Kind, error) { return offline.Kinds(), nil })
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
		Short: "Explain why a name resolves as it does",
		Long: `Follows a name through the agent's resolver: the names that a client queries in turn, given the
search list and ndots of its resolv.conf, and the outcome of each query. The outcome is the service
that owns the name, with the reason and other services that claim it, a missing name below a mesh
suffix, or a query to upstreams. Without --search and --ndots, the command uses the agent's own
resolv.conf.

With --dataplane, the answer is for the workload of this dataplane, and says whether its proxy
routes the address to the service.

The exit code is 0 if the name resolves or goes to upstreams, and 2 if the name does not exist or
has no address.

With -f, the answer comes only from these resources, of all their meshes, without an agent.
NEARSIDE_NODE_ZONE sets the zone, and NEARSIDE_DNS_REACHABLEONLY=true sets dns.reachableOnly.`,
		Example: `  nearside explain dns backend.mesh
  nearside explain dns backend --dataplane web \
    --search default.svc.cluster.local,mesh --ndots 5
  nearside explain dns backend.svc.mesh.local --dataplane web -f resources/`,
		Args: command.Args(1, 1, "NAME"),
	}
	command.MeshFlag(env, cmd)
	files.Add(cmd, "compute offline from these resources")
	command.DataplaneFlag(env, cmd, &q.Dataplane, "name of the dataplane whose workload queries the name")
	cmd.Flags().StringSliceVar(&q.Search, "search", nil, "search list of the client")
	cmd.Flags().IntVar(&ndots, "ndots", 1,
		"number of dots from which the client first tries a name without the search list")
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if q.Dataplane != "" {
			q.Dataplane, err = command.DataplaneName(cmd.Context(), env, &files, q.Dataplane)
		} else {
			err = command.SelectMesh(cmd.Context(), env, &files)
		}
		if err != nil {
			return err
		}
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
