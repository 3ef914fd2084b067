package legacy

import (
	"encoding/json"
	"slices"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxNames bounds the names of clients in rules that are held against each other.
const maxNames = 12

// admitSame reports whether the policies of two RBAC filters admit the same clients: for each set of names that a
// certificate can have.
func admitSame(before, after any) bool {
	a, known := principals(before)
	b, alsoKnown := principals(after)
	var names []string
	for _, p := range slices.Concat(a, b) {
		known = namesIn(p, &names) && known
	}
	if !known || !alsoKnown || len(names) > maxNames {
		return false
	}
	for set := range 1 << len(names) {
		has := func(name string) bool { return set&(1<<slices.Index(names, name)) != 0 }
		holds := func(p *rbacv3.Principal) bool { return met(p, has) }
		if slices.ContainsFunc(a, holds) != slices.ContainsFunc(b, holds) {
			return false
		}
	}
	return true
}

// principals returns those of all policies of a filter; false when they cannot be read.
func principals(policies any) ([]*rbacv3.Principal, bool) {
	var out []*rbacv3.Principal
	var m rbacv3.RBAC
	raw, err := json.Marshal(map[string]any{"policies": policies})
	if err != nil || protojson.Unmarshal(raw, &m) != nil {
		return nil, false
	}
	for _, p := range m.Policies {
		out = append(out, p.Principals...)
	}
	return out, true
}

// namesIn collects the names that a principal wants; false when it is of a form that the filters do not have.
func namesIn(p *rbacv3.Principal, names *[]string) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Any:
		return true
	case *rbacv3.Principal_Authenticated_:
		name := id.Authenticated.GetPrincipalName().GetExact()
		if !slices.Contains(*names, name) {
			*names = append(*names, name)
		}
		return name != ""
	case *rbacv3.Principal_NotId:
		return namesIn(id.NotId, names)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(p *rbacv3.Principal) bool { return !namesIn(p, names) })
	}
	return false
}

// met reports whether a client with some names is a principal.
func met(p *rbacv3.Principal, has func(string) bool) bool {
	switch id := p.Identifier.(type) {
	case *rbacv3.Principal_Authenticated_:
		return has(id.Authenticated.GetPrincipalName().GetExact())
	case *rbacv3.Principal_NotId:
		return !met(id.NotId, has)
	case *rbacv3.Principal_AndIds:
		return !slices.ContainsFunc(id.AndIds.Ids, func(p *rbacv3.Principal) bool { return !met(p, has) })
	}
	return true // any
}
