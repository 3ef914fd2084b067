package command

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Name is the name of a resource as people and nearside write it. Mesh is empty if the name does
// not include the mesh.
type Name struct {
	Type, Mesh, Name string
}

// ParseReference parses TYPE NAME, TYPE MESH/NAME, TYPE/NAME, and TYPE/MESH/NAME. Name is empty if
// there is only a TYPE.
func ParseReference(args []string) (Name, error) {
	typ, rest, slash := strings.Cut(args[0], "/")
	switch {
	case len(args) == 2 && slash && rest != "":
		return Name{}, Usagef("the name is given twice, in %q and as %q", args[0], args[1])
	case len(args) == 2:
		rest = args[1]
	case !slash:
		return Name{Type: typ}, nil
	}
	n, err := split(strings.Join(args, " "), rest)
	n.Type = typ
	return n, err
}

// split parses NAME and MESH/NAME. whole is shown in errors.
func split(whole, s string) (Name, error) {
	parts := strings.Split(s, "/")
	if len(parts) > 2 || len(parts) == 2 && slices.Contains(parts, "") {
		return Name{}, Usagef("%q is not the name of a resource; give NAME, MESH/NAME, TYPE/NAME, or TYPE/MESH/NAME", whole)
	}
	if len(parts) == 1 {
		return Name{Name: s}, nil
	}
	return Name{Mesh: parts[0], Name: parts[1]}, nil
}

// parseNameOf parses the name of a resource whose kind is known: NAME, MESH/NAME, and both after
// the TYPE and a slash.
func parseNameOf(kind api.Kind, s string) (Name, error) {
	if typ, rest, ok := strings.Cut(s, "/"); ok && isKind(kind, typ) {
		return split(s, rest)
	} else if ok && strings.Contains(rest, "/") {
		return Name{}, Usagef("%q is not the name of a %s; give NAME, MESH/NAME, or %s/MESH/NAME", s, kind.Kind, kind.Kind)
	}
	return split(s, s)
}

// isKind reports whether a kind has a name, in any case.
func isKind(k api.Kind, name string) bool {
	return name != "" &&
		(strings.EqualFold(name, k.Kind) || strings.EqualFold(name, k.Plural) || strings.EqualFold(name, k.Short))
}

var (
	dataplaneKind = api.Kind{Kind: "Dataplane", Plural: "dataplanes", Short: "dp"}
	zoneKinds     = map[node.Type]api.Kind{
		node.ProxyEgress:  {Kind: "ZoneEgress", Plural: "zoneegresses", Short: "ze", Global: true},
		node.ProxyIngress: {Kind: "ZoneIngress", Plural: "zoneingresses", Short: "zi", Global: true},
	}
)

// complete completes a name: it selects the mesh, and recognizes node IDs. If both a name and -m
// have a mesh, it must be the same. f selects files instead of the agent; it may be nil.
func complete(ctx context.Context, env *Env, f *FileFlags, kind api.Kind, n Name) (*Reference, error) {
	r := &Reference{Kind: kind, Name: n.Name}
	if kind.Global {
		if n.Mesh != "" {
			return nil, Usagef("%s/%s/%s: a %s belongs to no mesh; give %s/%s", n.Type, n.Mesh, n.Name, kind.Kind,
				strings.ToLower(kind.Kind), n.Name)
		}
		if id, err := node.ParseRef(n.Name); err == nil && strings.HasPrefix(n.Name, ".") && id.Type.Kind() == kind.Kind {
			r.Name = id.Name
		}
		return r, nil
	}
	if n.Mesh != "" {
		if err := adopt(env, n.Mesh, n.Mesh+"/"+n.Name); err != nil {
			return nil, err
		}
	}
	if kind.Kind == dataplaneKind.Kind && n.Mesh == "" {
		id, err := nodeID(ctx, env, f, n.Name)
		if err != nil {
			return nil, err
		}
		r.Name = cmp.Or(id.Name, r.Name)
	}
	err := SelectMesh(ctx, env, f)
	r.Mesh = env.Mesh
	return r, err
}

// nodeID returns the dataplane that an xDS node ID names, and selects its mesh, or returns the zero
// value if s is no node ID. Names may contain dots too: one that begins with the name of a mesh is
// a node ID unless the selected mesh has a dataplane of the whole name.
func nodeID(ctx context.Context, env *Env, f *FileFlags, s string) (node.Ref, error) {
	id, err := node.ParseRef(s)
	if err != nil || id.Type != node.ProxyDataplane || env.meshGiven() && env.Mesh != id.Mesh {
		return node.Ref{}, nil
	}
	c := catalogOf(env, f)
	meshes, err := c.meshes(ctx)
	if err != nil || !slices.Contains(meshes, id.Mesh) {
		return node.Ref{}, err
	}
	if of, err := chosenMesh(env, meshes); err == nil {
		names, err := c.names(ctx, dataplaneKind.Plural, of)
		if err != nil || slices.Contains(names, s) {
			return node.Ref{}, err
		}
	}
	return id, adopt(env, id.Mesh, s)
}

// DataplaneName returns the name of the dataplane that an argument or a flag names, and selects its
// mesh. It accepts all forms that nearside prints: NAME, MESH/NAME, both after "dataplane/", and
// the node ID MESH.NAME. f selects files instead of the agent; it may be nil.
func DataplaneName(ctx context.Context, env *Env, f *FileFlags, s string) (string, error) {
	n, err := parseNameOf(dataplaneKind, s)
	if err != nil {
		return "", err
	}
	r, err := complete(ctx, env, f, dataplaneKind, n)
	if err != nil {
		return "", err
	}
	if f == nil || len(f.Paths) == 0 {
		env.Named = r
	}
	return r.Name, nil
}

// DataplaneFilter is [DataplaneName] for a command that covers all meshes: it selects a mesh only
// if the name includes one.
func DataplaneFilter(ctx context.Context, env *Env, f *FileFlags, s string) (string, error) {
	n, err := parseNameOf(dataplaneKind, s)
	switch {
	case err != nil:
		return "", err
	case n.Mesh != "":
		return n.Name, adopt(env, n.Mesh, s)
	}
	id, err := nodeID(ctx, env, f, s)
	return cmp.Or(id.Name, n.Name), err
}

// ZoneProxy returns the name of the zone proxy that an argument names: NAME, KIND/NAME, or the node
// ID .egress.NAME or .ingress.NAME.
func ZoneProxy(env *Env, t node.Type, s string) (string, error) {
	kind := zoneKinds[t]
	n, err := parseNameOf(kind, s)
	if err != nil {
		return "", err
	}
	n.Type = kind.Kind
	r, err := complete(context.Background(), env, nil, kind, n)
	if err != nil {
		return "", err
	}
	return r.Name, nil
}

// ZoneNodeID returns the type of the zone proxy that a node ID or KIND/NAME names, or "" for
// others.
func ZoneNodeID(s string) node.Type {
	if id, err := node.ParseRef(s); err == nil {
		return id.Type
	}
	for t, kind := range zoneKinds {
		if typ, _, ok := strings.Cut(s, "/"); ok && isKind(kind, typ) {
			return t
		}
	}
	return node.ProxyDataplane
}

// AdoptMesh selects the mesh of a reference that includes it, before other names are resolved.
func AdoptMesh(env *Env, args []string) error {
	n, err := ParseReference(args)
	if err != nil || n.Mesh == "" {
		return nil // [Resolve] reports it
	}
	return adopt(env, n.Mesh, n.Mesh+"/"+n.Name)
}
