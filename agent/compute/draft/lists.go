package draft

import (
	"bytes"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// Lists are lists of sealed resources by rank of their type. Each is sorted by name and never
// changed once made, so that all who hold one share it.
type Lists = envoy.Snapshot

// Find returns the resource of a name, nil when the list has none.
func Find(list []*Resource, name string) *Resource {
	i, ok := slices.BinarySearchFunc(list, name, func(r *Resource, name string) int {
		return strings.Compare(r.Name, name)
	})
	if !ok {
		return nil
	}
	return list[i]
}

// SameList says whether two lists are the same slice; two empty ones are.
func SameList(a, b []*Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// ByName orders resources by name.
func ByName(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }

// Merge returns base with the resources of over put in by name and those of the names in without
// left out; nil leaves out none. Both lists are sorted; base is returned as it is when nothing
// differs.
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

// Referrers lists, by rank, the types whose resources may refer to one. The graph has no cycle.
var Referrers = [NumTypes][]int{
	RankSecret:   {RankCluster, RankListener},
	RankCluster:  {RankListener, RankRoute},
	RankEndpoint: {RankCluster, RankListener, RankRoute},
	RankListener: nil,
	RankRoute:    {RankListener},
}

// referrersFirst is the ranks from those that refer to others to those that are referred to.
var referrersFirst = [...]int{RankListener, RankRoute, RankCluster, RankEndpoint, RankSecret}

// Substitute returns the lists of a config with older resources in the place of those of the same
// names, in any order, and with what these refer to and the config has no longer, taken from the
// lists that had it. All other lists are shared.
func Substitute(current, older, had *Lists) Lists {
	out, put := *current, *older
	for _, rank := range referrersFirst {
		if put[rank] = append(slices.Clip(put[rank]),
			mentioned(&put, rank, missing(current[rank], had[rank]))...); len(put[rank]) > 0 {
			put[rank] = slices.SortedFunc(slices.Values(put[rank]), ByName)
			put[rank] = slices.CompactFunc(put[rank], func(a, b *Resource) bool { return a.Name == b.Name })
			out[rank] = Merge(current[rank], put[rank], nil)
		}
	}
	return out
}

// missing returns the resources of had of whose names a list has none. Both are sorted by name.
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

// Mentions says whether a resource may refer to a name. A name that stands in other words counts
// too: to keep something a little longer than needed does no harm.
func Mentions(r *Resource, name string) bool { return bytes.Contains(r.Body(), []byte(name)) }

// mentioned returns those resources of a rank to which a resource of lists, of a type whose
// resources refer to those of that rank, may refer.
func mentioned(lists *Lists, rank int, some []*Resource) (out []*Resource) {
	if len(some) == 0 {
		return nil
	}
	var bodies [][]byte
	for _, from := range Referrers[rank] {
		bodies = append(bodies, bodiesOf(lists[from])...)
	}
	names := make([]string, len(some))
	for i, r := range some {
		names[i] = r.Name
	}
	for i, is := range mentions(bodies, names) {
		if is {
			out = append(out, some[i])
		}
	}
	return out
}

func bodiesOf(list []*Resource) [][]byte {
	out := make([][]byte, len(list))
	for i, r := range list {
		out[i] = r.Body()
	}
	return out
}

// Withheld is a resource of a config that is not sent, since the check of the agent finds that
// Envoy could not use it.
type Withheld struct {
	ID       ResourceID
	Resource *Resource // as it is in the config
	Rule     int       // its number in the rules of the check
	Reason   string    // for people: what Envoy would do, the place, the value, the bound and the remedy
	// Cause is the withheld resource that this one needs and that alone is at fault; the zero value
	// for none.
	Cause ResourceID
}
