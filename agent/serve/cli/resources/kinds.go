package resources

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

func apiResourcesCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "List the types of resources",
		Long: `Lists the types of resources that the agent knows, in the order in which policies act: the name of each for TYPE, its short name, kind,
whether its resources belong to a mesh, and whether it is a policy or a legacy one.`,
		Example: "  nearside api-resources\n  nearside api-resources -o json | jq -r '.[] | select(.policy) | .plural'",
		Args:    command.Args(0, 0, "no arguments"),
	}
	format := command.OutputFlag(cmd, "table", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kinds, err := env.Client().Kinds(cmd.Context())
		if err != nil {
			return err
		}
		if *format == "name" {
			for _, k := range kinds {
				text.Println(env.Stdout, k.Plural)
			}
			return nil
		}
		if ok, err := command.Printed(env, *format, kinds); ok {
			return err
		}
		t := text.NewTable(env.Stdout, "NAME", "SHORT", "KIND", "MESHED", "ACTS AS")
		for _, k := range kinds {
			as := ""
			switch {
			case k.Legacy:
				as = "legacy policy"
			case k.Policy:
				as = "policy"
			}
			t.Row(k.Plural, k.Short, k.Kind, fmt.Sprint(!k.Global), as)
		}
		return t.Flush()
	}
	return cmd
}
