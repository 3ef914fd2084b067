package resources

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func historyCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "history TYPE NAME",
		SuggestFor: []string{"revisions", "rollout"},
		Short:      "List the revisions of a resource",
		Long: `Lists the latest revisions of a resource, oldest first, deletions included; also of one that is deleted. Each says
what was changed, from which source (file, API, Envoy), by whom and when; -o yaml has the exact times and the content.`,
		Example: "  nearside history meshtimeout slow\n  nearside history dataplane web -m shop -o yaml",
		Args:    command.Args(1, 2, "TYPE NAME or TYPE/NAME"),
	}
	command.ResourceFlags(env, cmd)
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := command.Resolve(cmd.Context(), env, args)
		if err != nil {
			return err
		}
		return command.Show(env, *format, text.History)(env.Client().History(cmd.Context(), r.Kind.Plural, r.Mesh, r.Name))
	}
	return cmd
}

func rollbackCommand(env *command.Env) *cobra.Command {
	var to uint64
	var dryRun bool
	cmd := &cobra.Command{
		Use:        "rollback TYPE NAME --to REVISION",
		SuggestFor: []string{"undo", "revert", "restore"},
		Short:      "Restore a revision of a resource",
		Long: `Writes the content of an earlier revision as a new one. A resource that was deleted is there again. --dry-run shows
what that would change on the proxies.`,
		Example: "  nearside rollback meshtimeout slow --to 41 --dry-run\n  nearside rollback mt/slow --to 41",
		Args:    command.Args(1, 2, "TYPE NAME or TYPE/NAME"),
	}
	command.ResourceFlags(env, cmd)
	cmd.Flags().Uint64Var(&to, "to", 0, "revision, as history lists it (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to == 0 {
			return command.Usagef("--to REVISION is missing; nearside history %s lists the revisions", strings.Join(args, " "))
		}
		r, err := command.Resolve(cmd.Context(), env, args)
		if err != nil {
			return err
		}
		q := api.Rollback{Type: r.Kind.Kind, Mesh: r.Mesh, Name: r.Name, Revision: to, DryRun: dryRun}
		return written(env, *format, text.DiffProxies)(command.Long(env, func(c *client.Client) (*api.Written, error) {
			return c.Rollback(cmd.Context(), q)
		}))
	}
	return cmd
}

func conflictsCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "List changes that lost against others made at the same time",
		Long: `Lists versions of resources that are not in force, though nobody who knew them has replaced them. STATE is lost where two nodes
changed a resource without knowing of each other, as during a cut: the later one is in force, and this is the other one. It is limbo
where a node that was away for more than a week has a resource that may have been deleted meanwhile.

A node lists those that it had itself: ask on both sides of a cut. They are kept for seven days, and leave the list when the version is
restored, or when somebody writes the resource who has seen both.`,
		Example: "  nearside conflicts\n  nearside conflicts show 019aaf3c5a810000-1f2e3d4c\n" +
			"  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c --dry-run",
	}
	cmd.AddCommand(conflictsShowCommand(env), conflictsRestoreCommand(env))
	return command.Asking(env, cmd, command.AsTable, text.Conflicts, command.Call(env, (*client.Client).Conflicts))
}

func conflictsShowCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a version that lost",
		Long:    "Shows the content of a version that is not in force, as nearside get shows that of the one which is.",
		Example: "  nearside conflicts show 019aaf3c5a810000-1f2e3d4c",
		Args:    command.Args(1, 1, "ID"),
	}
	format := command.OutputFlag(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := env.Client().Conflicts(cmd.Context())
		if err != nil {
			return err
		}
		for i := range got.Items {
			c := &got.Items[i]
			switch {
			case c.ID != args[0]:
				continue
			case c.Deleted:
				return fmt.Errorf("the version is a deletion of %s", text.TypeAndName(c.Type, c.Name)+text.InMesh(c.Mesh))
			case c.Resource == nil:
				return fmt.Errorf("%s", c.Reason)
			}
			_, err := command.Printed(env, *format, c.Resource)
			return err
		}
		return fmt.Errorf("no conflict has the id %q; nearside conflicts lists them", args[0])
	}
	return cmd
}

func conflictsRestoreCommand(env *command.Env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "restore ID",
		Short: "Bring a version that lost into force",
		Long: "Writes a version that is not in force as the newest one, on all nodes. " +
			"--dry-run shows what that would change on the proxies of this node.",
		Example: "  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c --dry-run\n" +
			"  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c",
		Args: command.Args(1, 1, "ID"),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return written(env, *format,
			text.DiffProxies)(env.Client().RestoreConflict(cmd.Context(), api.RestoreConflict{ID: args[0], DryRun: dryRun}))
	}
	return cmd
}
