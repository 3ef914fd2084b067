package draft

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// Lists holds sealed resources by the rank of their type. Each list is sorted by name and
// immutable, so it can be shared.
type Lists = envoy.Snapshot

// Find returns the resource with a name, nil if the list has none. The list is sorted by name.
func Find(list []*Resource, name string) *Resource {
	if i, ok := search(list, name); ok {
		return list[i]
	}
	return nil
}

func search(list []*Resource, name string) (i int, found bool) {
	return slices.BinarySearchFunc(list, name, func(r *Resource, name string) int { return strings.Compare(r.Name, name) })
}

// SameList reports whether two lists are the same slice. Two empty lists are the same.
func SameList(a, b []*Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// ByName orders resources by name.
func ByName(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }

// Merge returns base with the resources of over, which replace those of the same name, and without
// the names for which without returns true. A nil function removes none. Both lists are sorted. If
// nothing differs, Merge returns base itself.
func Merge(base, over []*Resource, without func(name string) bool) []*Resource {
	out := make([]*Resource, 0, len(base)+len(over))
	differs := false
	i, j := 0, 0
	for i < len(base) || j < len(over) {
		var r *Resource
		switch {
		case j == len(over) || i < len(base) && base[i].Name < over[j].Name:
			r = base[i]
			i++
			if without != nil && without(r.Name) {
				differs = true
				continue
			}
		case i == len(base) || over[j].Name < base[i].Name:
			r, differs = over[j], true
			j++
		default:
			r = over[j]
			differs = differs || r != base[i]
			i, j = i+1, j+1
		}
		out = append(out, r)
	}
	if !differs {
		return base
	}
	return slices.Clip(out)
}

// Referrers lists, by rank, the types whose resources may refer to those of a type. The graph has
// no cycle.
var Referrers = [NumTypes][]int{
	RankSecret:   {RankCluster, RankListener},
	RankCluster:  {RankListener, RankRoute},
	RankEndpoint: {RankCluster, RankListener, RankRoute},
	RankListener: nil,
	RankRoute:    {RankListener},
}

// referrersFirst lists the ranks such that each precedes the ranks to which its resources refer.
var referrersFirst = [...]int{RankListener, RankRoute, RankCluster, RankEndpoint, RankSecret}

// Substitute returns the lists of a config in which older resources, in any order, replace those of
// the same names. It adds the resources to which these refer and which the config no longer has,
// from the lists of had. Lists that do not change are shared.
func Substitute(current, older, had *Lists) Lists {
	out, put := *current, *older
	for _, rank := range referrersFirst {
		put[rank] = append(slices.Clip(put[rank]), referred(&put, rank, missing(current[rank], had[rank]))...)
		if len(put[rank]) > 0 {
			put[rank] = slices.SortedFunc(slices.Values(put[rank]), ByName)
			put[rank] = slices.CompactFunc(put[rank], func(a, b *Resource) bool { return a.Name == b.Name })
			out[rank] = Merge(current[rank], put[rank], nil)
		}
	}
	return out
}

// Retain returns the lists of a config with the resources to which drained listeners refer and
// which the config no longer has, from the lists of had. The draining listeners themselves are not
// added.
func Retain(current *Lists, draining []*Resource, had *Lists) Lists {
	out := Substitute(current, &Lists{RankListener: draining}, had)
	out[RankListener] = current[RankListener]
	return out
}

// missing returns the resources of had whose names are not in list. Both are sorted by name.
func missing(list, had []*Resource) (out []*Resource) {
	if SameList(list, had) {
		return nil
	}
	for _, r := range had {
		for len(list) > 0 && list[0].Name < r.Name {
			list = list[1:]
		}
		if len(list) == 0 || list[0].Name != r.Name {
			out = append(out, r)
		}
	}
	return out
}

// referred returns the resources of some to which the resources of lists refer, directly or through
// other resources of some. All resources of some have one rank and are sorted by name.
func referred(lists *Lists, rank int, some []*Resource) (out []*Resource) {
	found := make([]bool, len(some))
	all := false
	var visit func(r *Resource)
	visit = func(r *Resource) {
		refs := r.Refs()
		all = all || rank == RankCluster && refs.AnyCluster()
		for _, name := range refs.Names(envoy.Kind(rank)) {
			if i, ok := search(some, name); ok && !found[i] {
				found[i] = true
				visit(some[i])
			}
		}
	}
	if len(some) > 0 {
		for _, list := range lists {
			for _, r := range list {
				visit(r)
			}
		}
	}
	if all {
		return some
	}
	for i, r := range some {
		if found[i] {
			out = append(out, r)
		}
	}
	return out
}

// Withheld is a resource of a config that is not sent, because the check finds that Envoy could not
// use it.
type Withheld struct {
	ID       ResourceID
	Resource *Resource // the version in the config
	Rule     int       // number of the rule of the check
	Reason   string    // for people: what Envoy would do, the field, the value, the limit, and the remedy
	// Cause is the withheld resource to which this one refers and which causes the problem; the
	// zero value for none.
	Cause ResourceID
}
