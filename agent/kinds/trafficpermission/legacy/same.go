package legacy

import "slices"

// maxNames bounds the names of clients in rules that are held against each other.
const maxNames = 12

// admitSame reports whether the policies of two RBAC filters admit the same clients: for each set of names that a
// certificate can have.
func admitSame(before, after any) bool {
	a, b := principals(before), principals(after)
	var names []string
	for _, p := range slices.Concat(a, b) {
		if !namesIn(p, &names) {
			return false
		}
	}
	if len(names) > maxNames {
		return false
	}
	for set := range 1 << len(names) {
		has := func(name string) bool { return set&(1<<slices.Index(names, name)) != 0 }
		if anyMet(a, has) != anyMet(b, has) {
			return false
		}
	}
	return true
}

// principals returns those of all policies of a filter.
func principals(policies any) []map[string]any {
	var out []map[string]any
	all, _ := policies.(map[string]any)
	for _, p := range all {
		of, _ := p.(map[string]any)
		list, _ := of["principals"].([]any)
		for _, x := range list {
			m, _ := x.(map[string]any)
			out = append(out, m)
		}
	}
	return out
}

// parts takes a principal apart: the name that it wants, or the principals in it.
func parts(p map[string]any) (name string, inside []map[string]any) {
	if a, ok := p["authenticated"].(map[string]any); ok {
		n, _ := a["principalName"].(map[string]any)
		name, _ = n["exact"].(string)
	}
	if not, ok := p["notId"].(map[string]any); ok {
		inside = append(inside, not)
	}
	set, _ := p["andIds"].(map[string]any)
	ids, _ := set["ids"].([]any)
	for _, x := range ids {
		m, _ := x.(map[string]any)
		inside = append(inside, m)
	}
	return name, inside
}

// namesIn collects the names that a principal wants; false when it is of a form that this plugin does not make.
func namesIn(p map[string]any, names *[]string) bool {
	name, inside := parts(p)
	if p["any"] == true {
		return true
	}
	if name != "" && !slices.Contains(*names, name) {
		*names = append(*names, name)
	}
	for _, x := range inside {
		if !namesIn(x, names) {
			return false
		}
	}
	return name != "" || len(inside) > 0
}

func anyMet(list []map[string]any, has func(string) bool) bool {
	return slices.ContainsFunc(list, func(p map[string]any) bool { return met(p, has) })
}

func met(p map[string]any, has func(string) bool) bool {
	name, inside := parts(p)
	switch {
	case p["any"] == true:
		return true
	case name != "":
		return has(name)
	case p["notId"] != nil:
		return !met(inside[0], has)
	}
	return !slices.ContainsFunc(inside, func(x map[string]any) bool { return !met(x, has) })
}
