package node

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func accessCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Show who may do what",
		Long: `Shows who the agent takes you for, what you may do, and which roles there are. The roles stand in api.roles of the
agent's config; without any, whoever may open the socket may read, and members of its group may write.`,
		Example: `  nearside access whoami
  nearside access can update meshtimeout slow
  nearside access list`,
		Args: command.Group,
		RunE: command.Help,
	}
	cmd.AddCommand(whoamiCommand(env), canCommand(env), accessListCommand(env))
	return cmd
}

func whoamiCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show who the agent takes you for, your roles, and the verbs that you may use",
		Example: "  nearside access whoami\n  nearside access whoami -o json | jq .roles",
		Args:    command.Args(0, 0, "no arguments"),
	}
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return command.Show(env, *format, func(p0 *api.Whoami) error { return printWhoami(env, p0) },
			nil)(env.Client().Whoami(cmd.Context()))
	}
	return cmd
}

func printWhoami(env *command.Env, w *api.Whoami) error {
	t := text.NewTable(env.Stdout, "WHO", "ROLES", "VERBS", "BY")
	roles := strings.Join(w.Roles, ",")
	if w.Operator {
		roles = cmp.Or(roles, "operator")
	}
	t.Row(w.Who, roles, strings.Join(w.Verbs, ","), w.How)
	return t.Flush()
}

// accessVerbs are the verbs of permissions.
var accessVerbs = [...]string{"get", "list", "inspect", "create", "update", "delete"}

func canCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "can VERB TYPE [NAME]",
		Short: "Say whether you may do something",
		Long: `Says yes or no, and why not. VERB is get, list, inspect (what the agent makes of resources: configs of proxies,
explanations, diffs), create, update or delete. Without NAME it is about all names. The exit code is 0 for yes and 2 for no.`,
		Example: `  nearside access can update meshtimeout slow
  nearside access can inspect dataplane -m shop
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
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(accessVerbs[:], args[0]) {
			return command.Usagef("there is no verb %q; one of %s", args[0], strings.Join(accessVerbs[:], ", "))
		}
		kind, name, _ := strings.Cut(args[1], "/")
		if len(args) == 3 {
			if name != "" {
				return command.Usagef("%s names the resource already; leave out %q", args[1], args[2])
			}
			name = args[2]
		}
		return command.Show(env, *format, func(p0 *api.Can) error { return printCan(env, p0) },
			func(c *api.Can) bool { return !c.Allowed })(env.Client().Can(cmd.Context(), args[0], kind, env.Mesh, name))
	}
	return cmd
}

func printCan(env *command.Env, c *api.Can) error {
	switch {
	case c.Allowed && c.Partial:
		text.Println(env.Stdout, "yes, for some of them")
	case c.Allowed:
		text.Println(env.Stdout, "yes")
	case c.Partial:
		text.Printf(env.Stdout, "no, for some of them alone: %s\n", c.Reason)
	default:
		text.Printf(env.Stdout, "no: %s\n", c.Reason)
	}
	return nil
}

func accessListCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the roles with their subjects and permissions, and who may be which proxy",
		Long: `Lists the roles of api.roles with who has them and what they allow, and below them the items of xds.access with the
proxies that each gives, in their order: the first that matches an Envoy decides.`,
		Example: "  nearside access list\n  nearside access list -o yaml",
		Args:    command.Args(0, 0, "no arguments"),
	}
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return command.Show(env, *format, func(p0 *api.AccessList) error { return printAccess(env, p0) },
			nil)(env.Client().Access(cmd.Context()))
	}
	return cmd
}

func printAccess(env *command.Env, l *api.AccessList) error {
	t := text.NewTable(env.Stdout, "ROLE", "SUBJECTS", "VERBS", "KINDS", "MESHES", "NAMES")
	for _, r := range l.Roles {
		who := strings.Join(text.Texts(r.Subjects), "; ")
		for _, p := range r.Allow {
			t.Row(r.Name, who, strings.Join(p.Verbs, ","), strings.Join(p.Kinds, ","), allOr(p.Meshes), allOr(p.Names))
			who = ""
		}
	}
	if len(l.Roles) > 0 {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if !l.Configured {
		text.Println(env.Stdout,
			"no api.roles: whoever may open the socket may read, and root, the agent's user and the socket's group may write")
	}
	for _, m := range l.Missing {
		text.Printf(env.Stderr, "warning: %s\n", m)
	}
	text.Println(env.Stdout)
	if !l.ProxiesConfigured {
		text.Println(env.Stdout,
			"no xds.access: root and the agent's user may be every proxy, and the socket's group those with a stored Dataplane")
		return nil
	}
	t = text.NewTable(env.Stdout, "PEER", "NODES", "BRING", "SERVICES", "TAGS")
	for _, p := range l.Proxies {
		who := p.Matcher.String()
		if p.Certificate != "" {
			who = strings.TrimPrefix(who+", certificate "+p.Certificate, ", ")
		}
		t.Row(who, strings.Join(p.Nodes, ","), fmt.Sprint(p.Bring), strings.Join(p.Services, ","), strings.Join(p.Tags, ","))
	}
	return t.Flush()
}

// allOr writes a list of patterns, of which an empty one stands for all.
func allOr(list []string) string { return cmp.Or(strings.Join(list, ","), "*") }
