package command

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// EnvMesh is the variable with the mesh of commands without -m.
const EnvMesh = "NEARSIDE_MESH"

// defaultMesh is the mesh of Kuma's tools.
const defaultMesh = "default"

// MeshFlag adds -m, which selects the mesh of names without one.
func MeshFlag(env *Env, cmd *cobra.Command) {
	meshFlag(env, cmd, "mesh (default: "+EnvMesh+", else the only mesh, else default)")
}

// MeshFlagWithoutAgent adds -m to a command that does not ask an agent for its meshes; see
// [FixedMesh].
func MeshFlagWithoutAgent(env *Env, cmd *cobra.Command) {
	meshFlag(env, cmd, "mesh (default: "+EnvMesh+", else default)")
}

// MeshFilter adds -m to a command that covers all meshes without it.
func MeshFilter(env *Env, cmd *cobra.Command, usage string) { meshFlag(env, cmd, usage) }

func meshFlag(env *Env, cmd *cobra.Command, usage string) {
	cmd.Flags().StringVarP(&env.Mesh, "mesh", "m", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("mesh", CompleteMesh(env)) // fails only for an undefined flag
}

// meshGiven reports whether -m or a name has selected the mesh.
func (env *Env) meshGiven() bool { return env.Mesh != "" && !env.meshDefaulted }

// adopt selects the mesh that a name includes.
func adopt(env *Env, mesh, name string) error {
	switch {
	case !env.meshGiven():
		env.Mesh, env.meshBy, env.meshDefaulted = mesh, name, false
	case env.Mesh != mesh && env.meshBy != "":
		return Usagef("%q and %q are in different meshes; give names of one mesh", env.meshBy, name)
	case env.Mesh != mesh:
		return Usagef("%q is in mesh %s, and -m is %s; give one mesh", name, mesh, env.Mesh)
	}
	return nil
}

// SelectMesh sets env.Mesh, unless -m or a name has selected it: to NEARSIDE_MESH, else to the only
// mesh, else to the mesh "default". Several other meshes are a usage error. f selects files instead
// of the agent; it may be nil.
func SelectMesh(ctx context.Context, env *Env, f *FileFlags) error {
	if env.Mesh != "" {
		return nil
	}
	if mesh := env.Getenv(EnvMesh); mesh != "" {
		env.Mesh, env.meshDefaulted = mesh, true
		return nil
	}
	meshes, err := catalogOf(env, f).meshes(ctx)
	if err != nil {
		return err
	}
	mesh, err := chosenMesh(env, meshes)
	if err != nil {
		return err
	}
	env.Mesh, env.meshDefaulted = mesh, true
	return nil
}

// FixedMesh returns the mesh of -m, else of NEARSIDE_MESH, else "default", for results that must
// not depend on an agent.
func FixedMesh(env *Env) string { return cmp.Or(env.Mesh, env.Getenv(EnvMesh), defaultMesh) }

// chosenMesh returns the mesh of -m, NEARSIDE_MESH, or a list.
func chosenMesh(env *Env, meshes []string) (string, error) {
	given := cmp.Or(env.Mesh, env.Getenv(EnvMesh))
	switch {
	case given != "":
		return given, nil
	case len(meshes) == 1:
		return meshes[0], nil
	case len(meshes) == 0, slices.Contains(meshes, defaultMesh):
		return defaultMesh, nil
	}
	return "", Usagef("the meshes are %s; select one with -m (--mesh) or %s", strings.Join(meshes, ", "), EnvMesh)
}

// catalog lists what exists, in files or at the agent.
type catalog struct {
	meshes func(context.Context) ([]string, error)
	names  func(ctx context.Context, plural, mesh string) ([]string, error)
}

func catalogOf(env *Env, f *FileFlags) catalog {
	if f != nil && len(f.Paths) > 0 {
		return fileCatalog(env, f)
	}
	names := func(ctx context.Context, plural, mesh string) ([]string, error) {
		names, err := env.Client().Names(ctx, plural, mesh, "")
		var denied *client.PermissionError
		if errors.As(err, &denied) && errors.As(denied.Err, new(*api.Error)) {
			return nil, nil // the command itself may be allowed
		}
		return names, err
	}
	return catalog{func(ctx context.Context) ([]string, error) { return names(ctx, "meshes", "") }, names}
}

// fileCatalog lists the resources of files.
func fileCatalog(env *Env, f *FileFlags) catalog {
	of := func(matches func(kind, mesh string) bool) ([]string, error) {
		o, err := Offline(env, f)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, k := range o.Keys() {
			if matches(k.Kind, k.Mesh) {
				out = append(out, k.Name)
			}
		}
		slices.Sort(out)
		return out, nil
	}
	return catalog{func(context.Context) ([]string, error) {
		return of(func(kind, _ string) bool { return kind == "Mesh" })
	}, func(_ context.Context, plural, in string) ([]string, error) {
		return of(func(kind, mesh string) bool {
			return plural == dataplaneKind.Plural && kind == dataplaneKind.Kind && mesh == in
		})
	}}
}
