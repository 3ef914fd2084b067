package resources

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func historyCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "history TYPE NAME",
		SuggestFor: []string{"revisions", "rollout"},
		Short:      "List the revisions of a resource",
		Long: `Lists the latest revisions of a resource, oldest first, deletions included; also of one that is deleted. Each says
what was changed, from which source (file, API, Envoy), by whom and when; -o yaml has the exact times and the content.`,
		Example:           "  nearside history meshtimeout slow\n  nearside history dataplane web -m shop -o yaml",
		Args:              command.Args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: command.CompleteTypeAndName(env),
	}
	command.MeshFlag(env, cmd)
	format := command.OutputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := command.Resolve(cmd.Context(), env, args)
		if err != nil {
			return err
		}
		return command.Show(env, *format, func(h *api.History) error {
			t := text.NewTable(env.Stdout, "REVISION", "CHANGE", "SOURCE", "AUTHOR", "AGE", "FIELDS")
			for _, rev := range h.Items {
				t.Row(fmt.Sprint(rev.Revision), rev.Action, rev.Source, rev.Author, text.Age(rev.Time), text.Fields(rev.Fields))
			}
			return t.Flush()
		}, nil)(env.Client().History(cmd.Context(), r.Kind.Plural, r.Mesh, r.Name))
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
		Example:           "  nearside rollback meshtimeout slow --to 41 --dry-run\n  nearside rollback mt/slow --to 41",
		Args:              command.Args(1, 2, "TYPE NAME or TYPE/NAME"),
		ValidArgsFunction: command.CompleteTypeAndName(env),
	}
	command.MeshFlag(env, cmd)
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
		c, done := command.LongClient(env)
		w, err := c.Rollback(cmd.Context(), q)
		done()
		return written(env, *format, text.DiffProxies)(w, err)
	}
	return cmd
}
