package policy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// MigrateInput is the input for migrating the policies of one legacy kind.
type MigrateInput struct {
	Index *Index // of the mesh, without shadow policies
	// Policies are the active policies of the kind, sorted by name.
	Policies []*resource.Resource
	// NameExists reports whether a policy of a kind with this name exists; nil means that none does.
	NameExists func(kind, name string) bool
}

// Migration is the result of migrating the policies of a legacy kind.
type Migration struct {
	Policies []Migrated
	// Without lists the policies that have no successor.
	Without []WithoutSuccessor
	// Changes explain the differences that successors cause in the config of a proxy.
	Changes []Change
}

// Migrated is a targetRef policy that replaces legacy ones. It has no labels yet.
type Migrated struct {
	Kind, Name string
	Spec       *resource.Policy
	From       []resource.Key // the legacy policies
	// Notes describe differences from the legacy policies and what the user has to check.
	Notes []string
}

// WithoutSuccessor is a legacy policy that has no successor, because it needs none or none is
// possible.
type WithoutSuccessor struct {
	Policy resource.Key
	Why    string
}

// Change explains a difference between the config of legacy policies and that of their successors.
// A field is identified by its path in the config, such as
//
//	Listener/outbound:10.0.0.1:80/filterChains/0/filters/envoy.filters.network.tcp_proxy/typedConfig/idleTimeout
//
// in which list items are identified by their name if they have one.
type Change struct {
	Path string // segments separated by "/": "x*" matches a segment with the prefix x, "**" any number of segments
	// Before and After are values as JSON: "" for an absent value, Any for any value.
	Before, After string
	Why           string
	// Same is true if Envoy behaves as before; otherwise the policies mean something else.
	Same bool
	// If, when set, must return true for the two values as decoded by encoding/json. The values are
	// then compared as a whole.
	If func(before, after any) bool
}

// Any matches any value, or none, in a Change.
const Any = "*"

// Explains reports whether c covers a change of the field at path. The arguments have the forms of
// Path, Before, and After.
func (c *Change) Explains(path []string, before, after string) bool {
	return (c.Before == Any || c.Before == before) && (c.After == Any || c.After == after) &&
		matchPath(strings.Split(c.Path, "/"), path)
}

func matchPath(pattern, path []string) bool {
	for len(pattern) > 0 {
		switch {
		case pattern[0] == "**":
			for i := range len(path) + 1 {
				if matchPath(pattern[1:], path[i:]) {
					return true
				}
			}
			return false
		case len(path) == 0 || !matchSegment(pattern[0], path[0]):
			return false
		}
		pattern, path = pattern[1:], path[1:]
	}
	return len(path) == 0
}

func matchSegment(pattern, segment string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == segment || open && strings.HasPrefix(segment, prefix)
}

// Ruled returns the policies of some kinds that select a dataplane.
func (x *Index) Ruled(dataplane *resource.Resource, kinds ...string) []*resource.Resource {
	var out []*resource.Resource
	for _, k := range kinds {
		for _, p := range x.Policies(k) {
			if x.Select(p, dataplane).Proxy {
				out = append(out, p)
			}
		}
	}
	return out
}

// MaxName limits the length of a legacy policy's name in its successor's name, so that the result
// is still valid with a prefix or suffix.
const MaxName = 180

// FreeName returns an unused name for new policies of some kinds: base, with a number if necessary.
// It adds the name to used.
func (in *MigrateInput) FreeName(base string, used map[string]bool, kinds ...string) string {
	name := base
	taken := func(kind string) bool { return in.NameExists != nil && in.NameExists(kind, name) }
	for n := 2; used[name] || slices.ContainsFunc(kinds, taken); n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	used[name] = true
	return name
}

// ClipName truncates a name so that the result is a valid name.
func ClipName(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.TrimRight(s, "-._")
}
