package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// CompletionTime bounds a request during shell completion.
const CompletionTime = time.Second

// complete returns a completion of resource names from the agent. If the agent does not respond, it
// completes nothing.
func complete(env *Env,
	list func(args []string, prefix string) (kind, mesh, name string, ok bool)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		kind, mesh, name, ok := list(args, prefix)
		if !ok {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := env.Quick(CompletionTime).Names(cmd.Context(), kind, mesh, name)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if prefix != name { // TYPE/NAME
			names = text.Each(names, func(n string) string { return strings.TrimSuffix(prefix, name) + n })
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteMesh completes names of meshes.
func CompleteMesh(env *Env) cobra.CompletionFunc {
	return complete(env, func(_ []string, prefix string) (kind, mesh, name string, ok bool) {
		return "meshes", "", prefix, true
	})
}

// CompleteNamesOf completes an argument with the names of one kind in the mesh of -m.
func CompleteNamesOf(env *Env, plural string) cobra.CompletionFunc {
	return complete(env, func(args []string, prefix string) (kind, mesh, name string, ok bool) {
		return plural, env.Mesh, prefix, len(args) == 0
	})
}

// CompleteDataplanes completes the values of a flag with the dataplanes of a mesh. It reads *of at
// completion time.
func CompleteDataplanes(env *Env, cmd *cobra.Command, flag string, of *string) {
	_ = cmd.RegisterFlagCompletionFunc(flag,
		complete(env, func(_ []string, prefix string) (kind, mesh, name string, ok bool) {
			return "dataplanes", *of, prefix, true
		}))
}

// DataplaneFlag adds --dataplane, a dataplane in the mesh of -m.
func DataplaneFlag(env *Env, cmd *cobra.Command, to *string, usage string) {
	cmd.Flags().StringVar(to, "dataplane", "", usage)
	CompleteDataplanes(env, cmd, "dataplane", &env.Mesh)
}

// CompleteTypeAndName completes TYPE NAME and TYPE/NAME.
func CompleteTypeAndName(env *Env) cobra.CompletionFunc {
	return complete(env, func(args []string, prefix string) (kind, mesh, name string, ok bool) {
		typ, name, slash := strings.Cut(prefix, "/")
		switch {
		case len(args) == 0 && slash:
			return typ, env.Mesh, name, true
		case len(args) == 0:
			return "", "", prefix, true
		}
		return args[0], env.Mesh, prefix, len(args) == 1 && !strings.Contains(args[0], "/")
	})
}
