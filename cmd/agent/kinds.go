package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) apiResourcesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "List the types of resources",
		Long: `Lists the types of resources that the agent knows, in the order in which policies act: the name of each for TYPE, its short name, kind,
whether its resources belong to a mesh, and whether it is a policy or a legacy one.`,
		Example: "  nearside api-resources\n  nearside api-resources -o json | jq -r '.[] | select(.policy) | .plural'",
		Args:    args(0, 0, "no arguments"),
	}
	format := outputFlag(cmd, "table", "json", "yaml", "name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kinds, err := a.client().Kinds(cmd.Context())
		if err != nil {
			return err
		}
		if *format == "name" {
			for _, k := range kinds {
				printLine(a.stdout, k.Plural)
			}
			return nil
		}
		if ok, err := a.printed(*format, kinds); ok {
			return err
		}
		t := newTable(a.stdout, "NAME", "SHORT", "KIND", "MESHED", "ACTS AS")
		for _, k := range kinds {
			as := ""
			switch {
			case k.Legacy:
				as = "legacy policy"
			case k.Policy:
				as = "policy"
			}
			t.row(k.Plural, k.Short, k.Kind, fmt.Sprint(!k.Global), as)
		}
		return t.Flush()
	}
	return cmd
}
