// Package resources implements the commands for resources: reading, changing, comparing, and
// waiting for them.
package resources

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/answer/offline"
	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/schema"
	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func apiResourcesCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "List the types of resources",
		Long: `Lists the types of resources in the order in which policies act: the name for TYPE, the short name,
the kind, whether it belongs to a mesh, and whether it is a policy or a legacy policy.`,
		Example: "  nearside api-resources\n  nearside api-resources -o json | jq -r '.[] | select(.policy) | .plural'",
	}
	format := command.OutputFlag(cmd, "table", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kinds, err := env.Client().Kinds(cmd.Context())
		if err != nil {
			return err
		}
		if command.PrintedNames(env, *format, kinds, func(k api.Kind) string { return k.Plural }) {
			return nil
		}
		return command.Show(env, *format, text.Kinds)(kinds, nil)
	}
	return cmd
}

func schemaCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema KIND[.FIELD]",
		Short: "Show the fields of a kind, or its JSON Schema",
		Long: `Lists the fields of a kind with their types and descriptions. With KIND.FIELD, it lists the fields
below one field. "[]" stands for each item of a list.

-o json prints a JSON Schema of the universal format, for completion and validation in editors. The
agent may still refuse a document that matches the schema, for example for fields that exclude each
other; use "nearside validate" to check. The command needs no agent.`,
		Example: `  nearside schema meshtimeout
  nearside schema meshpassthrough.spec.default
  nearside schema dataplane -o json > dataplane.schema.json`,
		Args: command.Args(1, 1, "KIND or KIND.FIELD"),
		ValidArgsFunction: func(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return text.Each(offline.Kinds(), func(k api.Kind) string { return strings.ToLower(k.Kind) }),
				cobra.ShellCompDirectiveNoFileComp
		},
	}
	format := command.OutputFlag(cmd, "table", "json", "yaml", "name")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		name, at, _ := strings.Cut(args[0], ".")
		kind, err := command.FindKind(offline.Kinds(), name)
		if err != nil {
			return err
		}
		doc, fields, _ := offline.Schema(kind.Kind)
		if at != "" {
			below := slices.DeleteFunc(slices.Clone(fields), func(f schema.Field) bool { return !under(at, f.Path) })
			if len(below) == 0 {
				near := ""
				if n := strict.Nearest(at, text.Each(fields, func(f schema.Field) string { return f.Path })); n != "" {
					near = "; did you mean " + n + "?"
				}
				return command.Usagef("%s has no field %q%s; nearside schema %s lists its fields",
					kind.Kind, at, near, strings.ToLower(kind.Kind))
			}
			fields = below
		}
		switch {
		case command.PrintedNames(env, *format, fields, func(f schema.Field) string { return f.Path }):
			return nil
		case command.IsDocument(*format) && at != "":
			return command.Usagef("-o %s prints the schema of the whole kind; omit %q", *format, "."+at)
		}
		return command.Show(env, *format, func(w io.Writer, _ map[string]any) {
			text.Rows(w, fields, func(f schema.Field) []string { return []string{f.Path, f.Type, f.About} },
				"FIELD", "TYPE", "DESCRIPTION")
		})(doc, nil)
	}
	return cmd
}

// under reports whether a path is a field or lies below it. It ignores the [] of lists.
func under(at, path string) bool {
	plain := func(s string) string { return strings.ReplaceAll(s, "[]", "") }
	at, path = plain(at), plain(path)
	return path == at || strings.HasPrefix(path, at+".")
}

// fileHint says where an edit that could not be applied is stored.
func fileHint(path string) string {
	return fmt.Sprintf("your changes are in %s; correct them, and run nearside apply -f %s", path, path)
}

// Commands returns the commands for resources.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{validateCommand(env), importCommand(env), applyCommand(env), deleteCommand(env),
		getCommand(env), apiResourcesCommand(env), schemaCommand(env), editCommand(env), diffCommand(env),
		migrateCommand(env), historyCommand(env), rollbackCommand(env), conflictsCommand(env), waitCommand(env)}
}
