package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// CompletionTime bounds a request during shell completion.
const CompletionTime = time.Second

// nothing is a completion without candidates.
func nothing() ([]string, cobra.ShellCompDirective) { return nil, cobra.ShellCompDirectiveNoFileComp }

// completeName completes NAME and MESH/NAME of a kind. before is the part of the word that precedes
// the name. If the agent does not respond, it completes nothing.
func completeName(ctx context.Context, env *Env, kind, before, prefix string) ([]string, cobra.ShellCompDirective) {
	c := env.Quick(CompletionTime)
	mesh, name, slash := strings.Cut(prefix, "/")
	if slash {
		before += mesh + "/"
	} else {
		mesh, name = "", prefix
		if SelectMesh(ctx, env, nil) == nil {
			mesh = env.Mesh
		}
	}
	var names []string
	if mesh != "" || kind == "meshes" {
		names, _ = c.Names(ctx, kind, mesh, name) // none if the agent does not respond
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(names) == 0 && !slash && kind != "meshes" {
		meshes, _ := c.Names(ctx, "meshes", "", prefix)
		names = text.Each(meshes, func(m string) string { return m + "/" })
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return text.Each(names, func(n string) string { return before + n }), directive
}

// CompleteMesh completes names of meshes.
func CompleteMesh(env *Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return completeName(cmd.Context(), env, "meshes", "", prefix)
	}
}

// CompleteNamesOf completes an argument with the names of one kind.
func CompleteNamesOf(env *Env, plural string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nothing()
		}
		return completeName(cmd.Context(), env, plural, "", prefix)
	}
}

// CompleteDataplanes completes the values of a flag with dataplanes. It reads *of, the value of -m,
// at completion time.
func CompleteDataplanes(env *Env, cmd *cobra.Command, flag string, of *string) {
	_ = cmd.RegisterFlagCompletionFunc(flag,
		func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			env.Mesh = *of
			return completeName(cmd.Context(), env, dataplaneKind.Plural, "", prefix)
		})
}

// DataplaneFlag adds --dataplane, which [DataplaneName] reads.
func DataplaneFlag(env *Env, cmd *cobra.Command, to *string, usage string) {
	cmd.Flags().StringVar(to, "dataplane", "", usage)
	CompleteDataplanes(env, cmd, "dataplane", &env.Mesh)
}

// CompleteTypeAndName completes the forms of [ParseReference].
func CompleteTypeAndName(env *Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		typ, name, slash := strings.Cut(prefix, "/")
		switch {
		case len(args) == 0 && slash:
			return completeName(cmd.Context(), env, typ, typ+"/", name)
		case len(args) == 0:
			names, err := env.Quick(CompletionTime).Names(cmd.Context(), "", "", prefix)
			if err != nil {
				return nothing()
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			return completeName(cmd.Context(), env, args[0], "", prefix)
		}
		return nothing()
	}
}
