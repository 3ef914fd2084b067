package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/command"
)

func completionCommand(env *command.Env) *cobra.Command {
	shells := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell: " + strings.Join(shells, ", "),
		Long: `Prints a script that completes commands, flags, types and, from the running agent, the names of resources.
SHELL is one of ` + strings.Join(shells, ", ") + ".",
		Example: `  source <(nearside completion bash)
  nearside completion zsh > "${fpath[1]}/_nearside"
  nearside completion fish > ~/.config/fish/completions/nearside.fish`,
		Args:                  command.Args(1, 1, "one SHELL: "+strings.Join(shells, ", ")),
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(env.Stdout, true)
			case "fish":
				return root.GenFishCompletion(env.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(env.Stdout)
			case "zsh":
				return root.GenZshCompletion(env.Stdout)
			}
			return command.Usagef("%q is not a known SHELL; one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}
