package generate

import (
	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// Replace returns the config with other forms of some resources, each from another config of the
// same proxy, and with the resources to which these refer and which p does not have. A resource
// that the other config lacks is removed. The result is p if nothing differs.
func (p *Proxy) Replace(forms map[draft.ResourceID]*Proxy) *Proxy {
	var order []*Proxy
	lists := map[*Proxy]*draft.Lists{}
	gone := map[draft.ResourceID]bool{}
	for rank, typeURL := range draft.Types {
		for _, r := range p.Sealed.Resources[rank] {
			id := draft.ResourceID{TypeURL: typeURL, Name: r.Name}
			from, is := forms[id]
			if !is {
				continue
			}
			if lists[from] == nil {
				lists[from] = &draft.Lists{}
				order = append(order, from)
			}
			if form := from.Resource(id); form != nil {
				lists[from][rank] = append(lists[from][rank], form)
			} else {
				gone[id] = true
			}
		}
	}
	sealed := *p.Sealed
	for _, from := range order {
		sealed.Resources = draft.Substitute(&sealed.Resources, lists[from], &from.Sealed.Resources)
	}
	same := true
	for rank, typeURL := range draft.Types {
		list := draft.Merge(sealed.Resources[rank], nil, func(name string) bool {
			return gone[draft.ResourceID{TypeURL: typeURL, Name: name}]
		})
		if !draft.SameList(list, p.Sealed.Resources[rank]) {
			sealed.Resources[rank], sealed.Versions[rank] = draft.Order(list)
			same = false
		}
	}
	if same {
		return p
	}
	for _, from := range order {
		sealed.Pipes = draft.Pipes(sealed.Pipes, from.Sealed.Pipes, sealed.Resources[draft.RankListener])
	}
	out := *p
	out.Sealed = &sealed
	return &out
}
