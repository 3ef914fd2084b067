package resources

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

func historyCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "history TYPE NAME",
		SuggestFor: []string{"revisions", "rollout"},
		Short:      "List the revisions of a resource",
		Long: `Lists the latest revisions of a resource, oldest first, including deletions. The resource may be
deleted. Each revision has the changed fields, the source (file, API, Envoy), the author, and the
time. -o yaml adds exact times and contents.`,
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
		Long: `Writes the content of an earlier revision as a new revision. This also restores a deleted resource.
--dry-run shows what would change on the proxies. --sign signs the new revision.`,
		Example: "  nearside rollback meshtimeout slow --to 41 --dry-run\n  nearside rollback mt/slow --to 41",
		Args:    command.Args(1, 2, "TYPE NAME or TYPE/NAME"),
	}
	command.ResourceFlags(env, cmd)
	var key command.KeyFlag
	key.Add(cmd)
	cmd.Flags().Uint64Var(&to, "to", 0, "revision from \"nearside history\" (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to == 0 {
			return command.Usagef("--to REVISION is required; nearside history %s lists the revisions", strings.Join(args, " "))
		}
		r, err := command.Resolve(cmd.Context(), env, args)
		if err != nil {
			return err
		}
		signs, err := key.Signs(env, []resource.Key{{Kind: r.Kind.Kind, Mesh: r.Mesh, Name: r.Name}})
		if err != nil {
			return err
		}
		if signs && !dryRun {
			o, err := revisionOf(cmd.Context(), env, &r, to)
			if err != nil {
				return err
			}
			return printWritten(env, *format, text.DiffProxies)(applySigned(cmd.Context(), env, &key, nil, o))
		}
		q := api.Rollback{Type: r.Kind.Kind, Mesh: r.Mesh, Name: r.Name, Revision: to, DryRun: dryRun}
		return printWritten(env, *format, text.DiffProxies)(command.Long(env, func(c *client.Client) (*api.Written, error) {
			return c.Rollback(cmd.Context(), q)
		}))
	}
	return cmd
}

// revisionOf returns an earlier revision of a resource.
func revisionOf(ctx context.Context, env *command.Env, r *command.Reference, to uint64) (*offline.Offline, error) {
	h, err := env.Client().History(ctx, r.Kind.Plural, r.Mesh, r.Name)
	if err != nil {
		return nil, err
	}
	var revisions []string
	for _, x := range h.Items {
		switch {
		case x.Resource == nil:
			continue
		case x.Revision == to:
			o, faults := offline.Read([]offline.Text{{Name: fmt.Sprint("revision ", to), Data: x.Resource, Shown: true}})
			return o, faults.Err()
		}
		revisions = append(revisions, fmt.Sprint(x.Revision))
	}
	return nil, command.Exit(command.ExitInvalid, fmt.Errorf("revision %d is not in the history of %s; "+
		"its revisions are: %s", to, text.TypeAndName(r.Kind.Kind, r.Name), strings.Join(revisions, ", ")))
}

func conflictsCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "List changes that lost to concurrent changes",
		Long: `Lists resource versions that lost to a concurrent write. STATE is lost if two nodes changed a
resource without knowing of each other's change, for example while the network was partitioned: the
later change is in force, and the list has the other one. STATE is limbo if a node that was away for
more than a week has a resource that may have been deleted in the meantime.

A node lists only the versions that it had itself. --all-nodes also asks the other live nodes of the
pool. FOUND-ON names the nodes that list the version; "conflicts show" and "conflicts restore" run
on one of them. A version stays in the list for seven days, or until it is restored, or until a
writer that has seen both versions changes the resource.

The exit code with --all-nodes is 3 if a live node sent no complete answer. Standard error names
these nodes, and the dead ones, which are not asked.`,
		Example: "  nearside conflicts\n  nearside conflicts --all-nodes\n" +
			"  nearside conflicts show 019aaf3c5a810000-1f2e3d4c\n" +
			"  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c --dry-run",
	}
	all := cmd.Flags().Bool("all-nodes", false, "also ask the other live nodes of the pool")
	cmd.AddCommand(conflictsShowCommand(env), conflictsRestoreCommand(env))
	format := command.OutputFlag(cmd, command.AsTable...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		got, err := env.Client().Conflicts(cmd.Context(), *all)
		if err := command.Show(env, *format, text.Conflicts)(got, err); err != nil {
			return err
		}
		if len(got.Unasked) > 0 {
			text.Printf(env.Stderr, "not asked, because dead: %s\n", strings.Join(got.Unasked, ", "))
		}
		for _, n := range got.Unanswered {
			text.Printf(env.Stderr, "node %s: %s\n", n.Name, n.Reason)
		}
		if len(got.Unanswered) > 0 {
			return command.Silent(command.ExitTimeout)
		}
		return nil
	}
	return cmd
}

func conflictsShowCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a version that lost",
		Long:    `Shows the content of a version that is not in force, in the format of "nearside get".`,
		Example: "  nearside conflicts show 019aaf3c5a810000-1f2e3d4c",
		Args:    command.Args(1, 1, "ID"),
	}
	format := command.OutputFlag(cmd, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		got, err := env.Client().Conflicts(cmd.Context(), false)
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
		Short: "Restore a version that lost",
		Long: `Writes a version that lost as the newest one, on all nodes. --dry-run shows what would change on the
proxies of this node.`,
		Example: "  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c --dry-run\n" +
			"  nearside conflicts restore 019aaf3c5a810000-1f2e3d4c",
		Args: command.Args(1, 1, "ID"),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, and change nothing")
	format := command.OutputFlag(cmd, "text", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return printWritten(env, *format,
			text.DiffProxies)(env.Client().RestoreConflict(cmd.Context(), api.RestoreConflict{ID: args[0], DryRun: dryRun}))
	}
	return cmd
}
