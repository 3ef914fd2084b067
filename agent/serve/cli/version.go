package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

func versionCommand(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  nearside version\n  nearside version -o json",
		Args:    command.Args(0, 0, "no arguments"),
	}
	format := command.OutputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		return command.Show(env, *format, func(b command.BuildInfo) error {
			_, err := fmt.Fprintf(env.Stdout, "%s %s (%s, %s; documents of Kuma up to %s)\n",
				b.Product, b.Version, b.Go, b.Platform, b.Schema)
			return err
		}, nil)(env.Build(), nil)
	}
	return cmd
}
