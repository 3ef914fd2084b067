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

// Resolve parses TYPE NAME or TYPE/NAME with the kinds of the agent.
func Resolve(ctx context.Context, env *Env, args []string) (Reference, error) {
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		if _, err := KindOf(ctx, env, args[0]); err != nil { // may be the name of a resource
			return Reference{}, err
		}
	}
	return ResolveAmong(env, args, func() ([]api.Kind, error) { return env.Client().Kinds(ctx) })
}

// ResolveAmong parses TYPE NAME or TYPE/NAME with the given kinds.
func ResolveAmong(env *Env, args []string, kinds func() ([]api.Kind, error)) (Reference, error) {
	typ, name, _ := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && name != "":
		return Reference{}, Usagef("the name is given twice, in %q and as %q", args[0], args[1])
	case len(args) == 2:
		name = args[1]
	}
	list, err := kinds()
	if err != nil {
		if name == "" { // invalid for every kind
			err = Usagef("the NAME of the %s is missing", typ)
		}
		return Reference{}, err
	}
	kind, err := FindKind(list, typ)
	if err == nil && name == "" {
		err = Usagef("the NAME of the %s is missing", typ)
	}
	if err != nil {
		if _, reversed := FindKind(list, name); reversed == nil && len(args) == 2 {
			err = Usagef("there is no TYPE %q; did you mean %s %s?", typ, name, typ)
		}
		return Reference{}, err
	}
	r := Reference{Kind: kind, Mesh: env.Mesh, Name: name}
	if kind.Global {
		r.Mesh = ""
	}
	env.Named = &r
	return r, nil
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

// AboutDataplane records that the command line names a dataplane.
func AboutDataplane(env *Env, name string) {
	env.Named = &Reference{Kind: api.Kind{Kind: "Dataplane", Plural: "dataplanes"}, Mesh: env.Mesh, Name: name}
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
	if mesh == "" || mesh == "default" {
		return ""
	}
	return " -m " + mesh
}

// FindKind finds a kind by any of its names, ignoring case.
func FindKind(kinds []api.Kind, name string) (api.Kind, error) {
	for _, k := range kinds {
		if name != "" &&
			(strings.EqualFold(name, k.Kind) || strings.EqualFold(name, k.Plural) || strings.EqualFold(name, k.Short)) {
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
