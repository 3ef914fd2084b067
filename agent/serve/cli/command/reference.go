package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/serve/cli/text"
)

// Reference is a resource on the command line, or a collection if Name is empty.
type Reference struct {
	Kind api.Kind
	Mesh string // empty for global kinds
	Name string
}

// Resolve parses the forms of [ParseReference] with the kinds of the agent, and selects the mesh.
func Resolve(ctx context.Context, env *Env, args []string) (Reference, error) {
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		if _, err := KindOf(ctx, env, args[0]); err != nil { // may be the name of a resource
			return Reference{}, err
		}
	}
	return ResolveAmong(ctx, env, nil, args, func() ([]api.Kind, error) { return env.Client().Kinds(ctx) })
}

// ResolveAmong is Resolve with the given kinds. f selects files instead of the agent; it may be
// nil.
func ResolveAmong(ctx context.Context, env *Env, f *FileFlags, args []string,
	kinds func() ([]api.Kind, error)) (Reference, error) {
	n, err := ParseReference(args)
	if err != nil {
		return Reference{}, err
	}
	list, err := kinds()
	if err != nil {
		if n.Name == "" { // invalid for every kind
			err = Usagef("the NAME of the %s is missing", n.Type)
		}
		return Reference{}, err
	}
	kind, err := FindKind(list, n.Type)
	if err == nil && n.Name == "" {
		err = Usagef("the NAME of the %s is missing", n.Type)
	}
	if err != nil {
		if _, reversed := FindKind(list, n.Name); reversed == nil && len(args) == 2 {
			err = Usagef("there is no TYPE %q; did you mean %s %s?", n.Type, n.Name, n.Type)
		}
		return Reference{}, err
	}
	r, err := complete(ctx, env, f, kind, n)
	if err != nil {
		return Reference{}, err
	}
	env.Named = r
	return *r, nil
}

// Complete completes a parsed reference, whose name may be empty.
func Complete(ctx context.Context, env *Env, n Name) (*Reference, error) {
	kinds, err := env.Client().Kinds(ctx)
	if err != nil {
		return nil, err
	}
	kind, err := FindKind(kinds, n.Type)
	if err != nil {
		return nil, err
	}
	return complete(ctx, env, nil, kind, n)
}

// KindOf finds a kind by any of its names, ignoring case.
func KindOf(ctx context.Context, env *Env, name string) (api.Kind, error) {
	kinds, err := env.Client().Kinds(ctx)
	if err != nil {
		return api.Kind{}, err
	}
	k, err := FindKind(kinds, name)
	if err == nil {
		return k, nil
	}
	if SelectMesh(ctx, env, nil) != nil {
		return k, err
	}
	for _, other := range kinds { // the argument may be a name without its type
		mesh := env.Mesh
		if other.Global {
			mesh = ""
		}
		names, nerr := env.Client().Names(ctx, other.Plural, mesh, name)
		if nerr == nil && slices.Contains(names, name) {
			one := strings.ToLower(other.Kind)
			return k, Usagef("%q is the name of a %s, not a TYPE; did you mean %s %s?", name, one, one, name)
		}
	}
	return k, err
}

// Nearby returns a hint for a resource that does not exist: similar names that the caller may see.
func Nearby(env *Env, err error) string {
	var p *api.Error
	if r := env.Named; r != nil && errors.As(err, &p) && p.Type == api.ProblemNotFound {
		ctx := context.Background()
		if r.Mesh != "" {
			meshes, err := env.Quick(CompletionTime).Names(ctx, "meshes", "", "")
			if err == nil && len(meshes) > 0 && !slices.Contains(meshes, r.Mesh) {
				return "the meshes are " + text.Some(meshes) + "; select one with -m"
			}
		}
		if r.Name == "" {
			return ""
		}
		names, err := env.Quick(CompletionTime).Names(ctx, r.Kind.Plural, r.Mesh, "")
		if slices.Contains(names, r.Name) {
			return "it exists, and the agent has not computed its config yet; repeat the command in a moment"
		}
		if near := strict.Nearest(r.Name, names); err == nil && near != "" {
			return fmt.Sprintf("did you mean %s?", near)
		}
		return fmt.Sprintf("nearside get %s%s lists the names", r.Kind.Plural, meshOption(r.Mesh))
	}
	return ""
}

// meshOption returns -m MESH unless the mesh is the default.
func meshOption(mesh string) string {
	if mesh == "" || mesh == defaultMesh {
		return ""
	}
	return " -m " + mesh
}

// FindKind finds a kind by any of its names, ignoring case.
func FindKind(kinds []api.Kind, name string) (api.Kind, error) {
	for _, k := range kinds {
		if isKind(k, name) {
			return k, nil
		}
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.Plural, strings.ToLower(k.Kind))
	}
	remedy := "nearside api-resources lists them"
	if near := strict.Nearest(strings.ToLower(name), names); near != "" {
		remedy = fmt.Sprintf("did you mean %s? %s", near, remedy)
	}
	switch {
	case strings.EqualFold(name, "services"), strings.EqualFold(name, "service"):
		remedy = "nearside inspect services lists the services"
	case strings.Contains(name, ","):
		remedy = "list one type at a time: nearside get " + strings.Split(name, ",")[0]
	}
	return api.Kind{}, Usagef("there is no TYPE %q; %s", name, remedy)
}
