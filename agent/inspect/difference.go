package inspect

import (
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/xds"
)

// ConfigDiff returns the patch (RFC 6902) that leads from one config of a proxy to another one, as documents of the
// form that [Config] has in XDS. It is not nil; it is empty when the configs are equal. Resources with the same bytes
// are not looked at.
func ConfigDiff(from, to *xds.Proxy) (jsonpatch.Patch, error) {
	r, err := xds.NewRenderer()
	if err != nil {
		return nil, err
	}
	a, b := map[string]any{}, map[string]any{}
	for rank, typeURL := range draft.Types {
		before, err := changed(r, rank, from.Sealed.Resources[rank], to.Sealed.Resources[rank])
		if err != nil {
			return nil, err
		}
		after, err := changed(r, rank, to.Sealed.Resources[rank], from.Sealed.Resources[rank])
		if err != nil {
			return nil, err
		}
		// A type without resources is not a member of the document.
		if len(from.Sealed.Resources[rank]) > 0 {
			a[typeURL] = before
		}
		if len(to.Sealed.Resources[rank]) > 0 {
			b[typeURL] = after
		}
	}
	return append(jsonpatch.Patch{}, jsonpatch.Diff(a, b)...), nil
}

// changed renders the resources of a list that another list does not have with the same bytes. Both are sorted.
func changed(r *xds.Renderer, rank int, list, other []*draft.Resource) (map[string]any, error) {
	out := map[string]any{}
	i := 0
	for _, res := range list {
		for i < len(other) && other[i].Name < res.Name {
			i++
		}
		if i < len(other) && other[i].Name == res.Name && other[i].Version == res.Version {
			continue
		}
		j, err := r.Render(rank, res)
		if err != nil {
			return nil, err
		}
		out[res.Name] = j
	}
	return out, nil
}
