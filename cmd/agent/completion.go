package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTime bounds a question to the agent while the user waits for a Tab.
const completionTime = time.Second

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "fish", "powershell", "zsh"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell: " + strings.Join(shells, ", "),
		Long: `Prints a script that completes commands, flags, types and, from the running agent, the names of resources.
SHELL is one of ` + strings.Join(shells, ", ") + ".",
		Example: `  source <(nearside completion bash)
  nearside completion zsh > "${fpath[1]}/_nearside"
  nearside completion fish > ~/.config/fish/completions/nearside.fish`,
		Args:                  args(1, 1, "one SHELL: "+strings.Join(shells, ", ")),
		ValidArgs:             shells,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			}
			return usagef("%q is not a known SHELL; one of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// names asks the agent; an agent that does not answer completes nothing.
func (a *app) names(cmd *cobra.Command, kind, mesh, prefix string) []string {
	names, err := a.quick(completionTime).Names(cmd.Context(), kind, mesh, prefix)
	if err != nil {
		return nil
	}
	return names
}

func (a *app) completeMesh(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return a.names(cmd, "meshes", "", prefix), cobra.ShellCompDirectiveNoFileComp
}

// completeNamesOf completes names of one kind in the mesh of -m.
func (a *app) completeNamesOf(kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.names(cmd, kind, a.mesh, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeDataplanes completes the values of a flag with the dataplanes of the mesh of -m.
func (a *app) completeDataplanes(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string,
		prefix string) ([]string, cobra.ShellCompDirective) {
		return a.names(cmd, "dataplanes", a.mesh, prefix), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeTypeAndName completes TYPE NAME and TYPE/NAME.
func (a *app) completeTypeAndName(cmd *cobra.Command, args []string,
	prefix string) ([]string, cobra.ShellCompDirective) {
	typ, name, slash := strings.Cut(prefix, "/")
	switch {
	case len(args) == 0 && slash:
		names := slices.Clone(a.names(cmd, typ, a.mesh, name))
		for i, n := range names {
			names[i] = typ + "/" + n
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 0:
		return a.names(cmd, "", "", prefix), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		return a.names(cmd, args[0], a.mesh, prefix), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
