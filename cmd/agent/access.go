package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func (a *app) accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Show who may do what",
		Long: `Shows who the agent takes you for, what you may do, and which roles there are. The roles stand in api.roles of the
agent's config; without any, whoever may open the socket may read, and members of its group may write.`,
		Example: `  nearside access whoami
  nearside access can update meshtimeout slow
  nearside access list`,
		Args: group,
		RunE: help,
	}
	cmd.AddCommand(a.whoamiCommand(), a.canCommand(), a.accessListCommand())
	return cmd
}

func (a *app) whoamiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show who the agent takes you for, your roles, and the verbs that you may use",
		Example: "  nearside access whoami\n  nearside access whoami -o json | jq .roles",
		Args:    args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return show(a, *format, a.printWhoami, nil)(a.client().Whoami(cmd.Context()))
	}
	return cmd
}

func (a *app) printWhoami(w *client.Whoami) error {
	t := newTable(a.stdout, "WHO", "ROLES", "VERBS", "BY")
	roles := strings.Join(w.Roles, ",")
	if w.Operator {
		roles = cmp.Or(roles, "operator")
	}
	t.row(w.Who, roles, strings.Join(w.Verbs, ","), w.How)
	return t.Flush()
}

// accessVerbs are the verbs of permissions.
var accessVerbs = [...]string{"get", "list", "inspect", "create", "update", "delete"}

func (a *app) canCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "can VERB TYPE [NAME]",
		Short: "Say whether you may do something",
		Long: `Says yes or no, and why not. VERB is get, list, inspect (what the agent makes of resources: configs of proxies,
explanations, diffs), create, update or delete. Without NAME it is about all names. The exit code is 0 for yes and 2 for no.`,
		Example: `  nearside access can update meshtimeout slow
  nearside access can inspect dataplane -m shop
  nearside access can delete mesh default && nearside delete mesh default`,
		Args: args(2, 3, "VERB TYPE [NAME]"),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(given) == 0 {
				return accessVerbs[:], cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeTypeAndName(cmd, given[1:], prefix)
		},
	}
	a.meshFlag(cmd)
	format := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(accessVerbs[:], args[0]) {
			return usagef("there is no verb %q; one of %s", args[0], strings.Join(accessVerbs[:], ", "))
		}
		kind, name, _ := strings.Cut(args[1], "/")
		if len(args) == 3 {
			if name != "" {
				return usagef("%s names the resource already; leave out %q", args[1], args[2])
			}
			name = args[2]
		}
		return show(a, *format, a.printCan,
			func(c *client.Can) bool { return !c.Allowed })(a.client().Can(cmd.Context(), args[0], kind, a.mesh, name))
	}
	return cmd
}

func (a *app) printCan(c *client.Can) error {
	switch {
	case c.Allowed && c.Partial:
		printLine(a.stdout, "yes, for some of them")
	case c.Allowed:
		printLine(a.stdout, "yes")
	case c.Partial:
		printf(a.stdout, "no, for some of them alone: %s\n", c.Reason)
	default:
		printf(a.stdout, "no: %s\n", c.Reason)
	}
	return nil
}

func (a *app) accessListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the roles with their subjects and permissions, and who may be which proxy",
		Long: `Lists the roles of api.roles with who has them and what they allow, and below them the items of xds.access with the
proxies that each gives, in their order: the first that matches an Envoy decides.`,
		Example: "  nearside access list\n  nearside access list -o yaml",
		Args:    args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return show(a, *format, a.printAccess, nil)(a.client().Access(cmd.Context()))
	}
	return cmd
}

func (a *app) printAccess(l *client.AccessList) error {
	t := newTable(a.stdout, "ROLE", "SUBJECTS", "VERBS", "KINDS", "MESHES", "NAMES")
	for _, r := range l.Roles {
		who := strings.Join(texts(r.Subjects), "; ")
		for _, p := range r.Allow {
			t.row(r.Name, who, strings.Join(p.Verbs, ","), strings.Join(p.Kinds, ","), allOr(p.Meshes), allOr(p.Names))
			who = ""
		}
	}
	if len(l.Roles) > 0 {
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if !l.Configured {
		printLine(a.stdout,
			"no api.roles: whoever may open the socket may read, and root, the agent's user and the socket's group may write")
	}
	for _, m := range l.Missing {
		printf(a.stderr, "warning: %s\n", m)
	}
	printLine(a.stdout)
	if !l.ProxiesConfigured {
		printLine(a.stdout,
			"no xds.access: root and the agent's user may be every proxy, and the socket's group those with a stored Dataplane")
		return nil
	}
	t = newTable(a.stdout, "PEER", "NODES", "BRING", "SERVICES", "TAGS")
	for _, p := range l.Proxies {
		who := p.Matcher.String()
		if p.Certificate != "" {
			who = strings.TrimPrefix(who+", certificate "+p.Certificate, ", ")
		}
		t.row(who, strings.Join(p.Nodes, ","), fmt.Sprint(p.Bring), strings.Join(p.Services, ","), strings.Join(p.Tags, ","))
	}
	return t.Flush()
}

// allOr writes a list of patterns, of which an empty one stands for all.
func allOr(list []string) string { return cmp.Or(strings.Join(list, ","), "*") }
