package node

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func accessCommand(env *command.Env) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "access",
		Short: "Show roles and permissions",
		Long: `Shows your identity, your permissions, and the roles of the agent. api.roles in the agent's config
defines the roles. Without roles, every user who can open the socket may read, and root, the agent's
user, and members of the socket's group may write.`,
		Example: `  nearside access whoami
  nearside access can update meshtimeout slow
  nearside access list`,
	}, whoamiCommand(env), canCommand(env), accessListCommand(env))
}

func whoamiCommand(env *command.Env) *cobra.Command {
	return command.Asking(env, &cobra.Command{
		Use:     "whoami",
		Short:   "Show your identity, roles, and verbs",
		Long:    `Shows the identity that the agent assigns to you, your roles, and the verbs that they allow.`,
		Example: "  nearside access whoami\n  nearside access whoami -o json | jq .roles",
	}, command.AsTable, text.Whoami, command.Call(env, (*client.Client).Whoami))
}

// accessVerbs lists the verbs of permissions.
var accessVerbs = [...]string{"get", "list", "inspect", "create", "update", "delete", "read-logs"}

func canCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "can VERB TYPE [NAME]",
		Short: "Check whether you may do something",
		Long: `Prints yes, or no with the reason. VERB is get, list, inspect, create, update, delete, or read-logs. The
verb inspect covers what the agent computes from resources: proxy configs, explanations, and diffs;
read-logs covers lines of log files over the API. The TYPE Agent stands for the agent itself: its pool, its log level, and its profiles. Without NAME, the
answer covers all names.

With --feature, the answer is about resources that use a dangerous feature: patch-unsafe for patches
with files, sockets, code, or keys, and log-path for access logs with the path of a file.

The exit code is 0 for yes and 2 for no.`,
		Example: `  nearside access can update meshtimeout slow
  nearside access can inspect dataplane -m shop
  nearside access can update Agent
  nearside access can create meshproxypatch --feature patch-unsafe
  nearside access can delete mesh default && nearside delete mesh default`,
		Args: command.Args(2, 3, "VERB TYPE [NAME]"),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(given) == 0 {
				return accessVerbs[:], cobra.ShellCompDirectiveNoFileComp
			}
			return command.CompleteTypeAndName(env)(cmd, given[1:], prefix)
		},
	}
	command.MeshFlag(env, cmd)
	features := cmd.Flags().StringSlice("feature", nil, "dangerous feature that the resource uses: "+
		strings.Join(access.FeatureNames[:], " or "))
	return command.Asking(env, cmd, command.AsText, text.Can,
		func(ctx context.Context, args []string) (*api.Can, error) {
			if !slices.Contains(accessVerbs[:], args[0]) {
				return nil, command.Usagef("there is no verb %q; use one of %s", args[0], strings.Join(accessVerbs[:], ", "))
			}
			n, err := command.ParseReference(args[1:])
			if err != nil {
				return nil, err
			}
			if _, err := access.ParseFeatures(*features...); err != nil {
				return nil, command.Usagef("--feature: %v", err)
			}
			mesh := ""
			if !strings.EqualFold(n.Type, access.KindAgent) {
				r, err := command.Complete(ctx, env, n)
				if err != nil {
					return nil, err
				}
				n, mesh = command.Name{Type: r.Kind.Kind, Name: r.Name}, r.Mesh
			}
			return env.Client().Can(ctx, args[0], n.Type, mesh, n.Name, *features...)
		}, func(c *api.Can) bool { return !c.Allowed })
}

func accessListCommand(env *command.Env) *cobra.Command {
	return command.Asking(env, &cobra.Command{
		Use:   "list",
		Short: "List roles, and which peers may be which proxy",
		Long: `Lists the roles of api.roles with their subjects and permissions, and the rules of xds.access with
the proxies that each rule admits. The first rule that matches an Envoy applies.`,
		Example: "  nearside access list\n  nearside access list -o yaml",
	}, command.AsTable, func(w io.Writer, v *api.AccessList) { text.Access(w, env.Stderr, v) },
		command.Call(env, (*client.Client).Access))
}
