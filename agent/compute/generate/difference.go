package generate

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Change is a resource whose bytes differ between two configs, or which only one of them has.
type Change struct {
	draft.ResourceID
	From, To *draft.Resource // nil if the config lacks it

	rank int
}

// Difference returns the changed resources between two configs of a proxy, sorted by type and name.
// Nil is a config without resources.
func Difference(from, to *Proxy) []Change {
	none := &Proxy{Sealed: &draft.Sealed{}}
	if from == nil {
		from = none
	}
	if to == nil {
		to = none
	}
	if from.Sealed == to.Sealed {
		return nil
	}
	var out []Change
	for rank, typeURL := range draft.Types {
		draft.Compare(from.Sealed.Resources[rank], to.Sealed.Resources[rank], func(a, b *draft.Resource) {
			out = append(out,
				Change{ResourceID: draft.ResourceID{TypeURL: typeURL, Name: cmp.Or(a, b).Name}, From: a, To: b, rank: rank})
		})
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(a.TypeURL, b.TypeURL) })
	return out
}

// Resource returns a resource of the config, or nil if there is none. The config may be nil.
func (p *Proxy) Resource(id draft.ResourceID) *draft.Resource {
	if p == nil {
		return nil
	}
	rank := draft.Rank(id.TypeURL)
	if rank < 0 {
		return nil
	}
	list := p.Sealed.Resources[rank]
	i, ok := slices.BinarySearchFunc(list, id.Name, func(r *draft.Resource, name string) int {
		return cmp.Compare(r.Name, name)
	})
	if !ok {
		return nil
	}
	return list[i]
}

// Has reports whether the config has resources of a type. The config may be nil.
func (p *Proxy) Has(typeURL string) bool {
	rank := draft.Rank(typeURL)
	return p != nil && rank >= 0 && len(p.Sealed.Resources[rank]) > 0
}

// Both renders a changed resource before and after the change. A missing resource is nil.
func (r *Renderer) Both(c *Change) (from, to json.RawMessage, err error) {
	if c.From != nil {
		if from, err = r.Render(c.rank, c.From); err != nil {
			return nil, nil, err
		}
	}
	if c.To != nil {
		if to, err = r.Render(c.rank, c.To); err != nil {
			return nil, nil, err
		}
	}
	return from, to, nil
}
