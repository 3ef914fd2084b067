package mesh

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// sidecars holds the dataplanes that their proxies say more about, by name.
type sidecars map[string]sidecar

type sidecar struct {
	from *resource.Resource
	by   *resource.Reach
	to   *resource.Resource
}

// restrict returns the dataplanes with what their proxies say that they reach, the list itself where none says
// anything. What it made for prev is used again.
func (v *View) restrict(list []*resource.Resource, said map[string]*resource.Reach, prev *View) []*resource.Resource {
	if len(said) == 0 {
		return list
	}
	v.sidecars = make(sidecars, len(said))
	out := slices.Clone(list)
	for name, by := range said {
		i, ok := slices.BinarySearchFunc(out, name, func(r *resource.Resource, name string) int { return strings.Compare(r.Name, name) })
		if !ok {
			continue
		}
		s := sidecar{from: out[i], by: by}
		if prev != nil && prev.sidecars[name].from == s.from && prev.sidecars[name].by == by {
			s = prev.sidecars[name]
		} else {
			s.to = by.Restrict(s.from)
		}
		v.sidecars[name], out[i] = s, s.to
	}
	return out
}

// Said returns what the proxy of a dataplane said that it reaches when the view was made; nil for nothing.
func (v *View) Said(dataplane string) *resource.Reach { return v.sidecars[dataplane].by }
