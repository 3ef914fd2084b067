package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/serve/client"
)

// reference is a resource, or with an empty name a collection, that a command line names.
type reference struct {
	kind client.Kind
	mesh string // "" for global kinds
	name string
}

// reference reads TYPE NAME or TYPE/NAME; the agent says what kinds there are.
func (a *app) reference(ctx context.Context, args []string) (reference, error) {
	if len(args) == 1 && !strings.Contains(args[0], "/") {
		if _, err := a.kind(ctx, args[0]); err != nil { // it may be the name of a resource
			return reference{}, err
		}
	}
	return a.referenceAmong(args, func() ([]client.Kind, error) { return a.client().Kinds(ctx) })
}

// referenceAmong reads TYPE NAME or TYPE/NAME of the kinds given.
func (a *app) referenceAmong(args []string, kinds func() ([]client.Kind, error)) (reference, error) {
	typ, name, _ := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && name != "":
		return reference{}, usagef("the name is given twice, in %q and as %q", args[0], args[1])
	case len(args) == 2:
		name = args[1]
	}
	list, err := kinds()
	if err != nil {
		if name == "" { // that is wrong whatever the kinds are
			err = usagef("the NAME of the %s is missing", typ)
		}
		return reference{}, err
	}
	kind, err := findKind(list, typ)
	if err == nil && name == "" {
		err = usagef("the NAME of the %s is missing", typ)
	}
	if err != nil {
		if _, reversed := findKind(list, name); reversed == nil && len(args) == 2 {
			err = usagef("there is no TYPE %q; did you mean %s %s?", typ, name, typ)
		}
		return reference{}, err
	}
	r := reference{kind: kind, mesh: a.mesh, name: name}
	if kind.Global {
		r.mesh = ""
	}
	a.named = &r
	return r, nil
}

// kind finds a kind by any of its names, in any case.
func (a *app) kind(ctx context.Context, name string) (client.Kind, error) {
	kinds, err := a.client().Kinds(ctx)
	if err != nil {
		return client.Kind{}, err
	}
	k, err := findKind(kinds, name)
	if err == nil {
		return k, nil
	}
	for _, other := range kinds { // the name of a resource may stand in the place of its type
		mesh := a.mesh
		if other.Global {
			mesh = ""
		}
		names, nerr := a.client().Names(ctx, other.Plural, mesh, name)
		if nerr == nil && slices.Contains(names, name) {
			one := strings.ToLower(other.Kind)
			return k, usagef("%q is no TYPE, and the name of a %s; did you mean %s %s?", name, one, one, name)
		}
	}
	return k, err
}

// aboutDataplane notes that the command line names a dataplane.
func (a *app) aboutDataplane(name string) {
	a.named = &reference{kind: client.Kind{Kind: "Dataplane", Plural: "dataplanes"}, mesh: a.mesh, name: name}
}

// nearby is what to do when what the command line names does not exist: the names that there are
// nearby, as far as who asks may see them.
func (a *app) nearby(err error) string {
	var p *client.Problem
	if r := a.named; r != nil && errors.As(err, &p) && p.Type == client.ProblemNotFound {
		ctx := context.Background()
		if r.mesh != "" {
			meshes, err := a.quick(completionTime).Names(ctx, "meshes", "", "")
			if err == nil && len(meshes) > 0 && !slices.Contains(meshes, r.mesh) {
				return "the meshes are " + some(meshes) + "; name one with -m"
			}
		}
		if r.name == "" {
			return ""
		}
		names, err := a.quick(completionTime).Names(ctx, r.kind.Plural, r.mesh, "")
		if near := client.Nearest(r.name, names); err == nil && near != "" {
			return fmt.Sprintf("did you mean %s?", near)
		}
		return fmt.Sprintf("nearside get %s%s lists those that there are", r.kind.Plural, meshOption(r.mesh))
	}
	return ""
}

// meshOption is -m MESH where that is not the default.
func meshOption(mesh string) string {
	if mesh == "" || mesh == "default" {
		return ""
	}
	return " -m " + mesh
}

func findKind(kinds []client.Kind, name string) (client.Kind, error) {
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
	if near := client.Nearest(strings.ToLower(name), names); near != "" {
		remedy = fmt.Sprintf("did you mean %s? %s", near, remedy)
	}
	switch {
	case strings.EqualFold(name, "services"), strings.EqualFold(name, "service"):
		remedy = "nearside inspect services lists the services"
	case strings.Contains(name, ","):
		remedy = "one at a time: nearside " + "get " + strings.Split(name, ",")[0]
	}
	return client.Kind{}, usagef("there is no TYPE %q; %s", name, remedy)
}
