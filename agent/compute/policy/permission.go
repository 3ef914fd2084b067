package policy

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Permissions says which services admit one dataplane, whether that restricts what it reaches or
// not.
type Permissions struct {
	admission *admission
	x         *Index
	clients   []map[string]string
	legacy    []*resource.Resource // kinds that the one that admits replaces
}

// Permission is what permissions say of the use of a service.
type Permission struct {
	Allowed bool
	// About is false where no permission can be about the service, so that none keeps anybody out.
	About bool
	By    Origin // what decides; its policy is nil where none is about the client
}

// Permissions prepares answers about a dataplane of the view; nil where the mesh keeps nobody out.
// set is the set of resources that the index is of. It is for one goroutine.
func (x *Index) Permissions(set *resource.Set, dataplane *resource.Resource) *Permissions {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	own := *x
	if own.guard == nil {
		own.guard = x.newGuard(set, nil)
	}
	if own.guard == nil {
		return nil
	}
	out := &Permissions{x: x, admission: own.admission(dp)}
	out.clients = out.admission.clients
	for _, plugin := range x.Plugins {
		if plugin.Admits == nil {
			continue
		}
		for _, l := range plugin.Legacy {
			for i := range x.legacy {
				if x.legacy[i].kind == l.Kind {
					out.legacy = append(out.legacy, x.legacy[i].policies...)
				}
			}
		}
	}
	return out
}

// Of says whether the dataplane may use a service of the view. A legacy policy decides where no
// other is about the service.
func (p *Permissions) Of(s *mesh.Service) Permission {
	d, subject := p.admission.of(s)
	switch {
	case !subject:
		return Permission{Allowed: true}
	case p.ruled(s) || len(p.legacy) == 0:
		return Permission{Allowed: d.yes, About: true, By: d.by}
	}
	return p.byLegacy(s)
}

// ruled reports whether some policy is about the service, whomever it is about.
func (p *Permissions) ruled(s *mesh.Service) bool {
	return slices.ContainsFunc(p.admission.g.of[s.Index], func(c *class) bool { return len(c.policies) > 0 })
}

// byLegacy asks the strongest legacy policy about a service. As for others, of the tags that it
// wants of the destination those count that the service is known by.
func (p *Permissions) byLegacy(s *mesh.Service) Permission {
	var known map[string]string
	switch s.ID.Kind {
	case mesh.KindTag:
		known = tagTags(s.Tag)
	case mesh.KindMeshService:
		known = p.x.selectorTags(s.Resource)
	default:
		return Permission{Allowed: true}
	}
	var strongest *resource.Resource
	var best rank
	for _, r := range p.legacy {
		spec, ok := r.Spec.(*resource.LegacyPolicy)
		if !ok {
			continue
		}
		for i := range spec.Destinations {
			want := map[string]string{}
			for k, v := range spec.Destinations[i].Match {
				if _, ok := known[k]; ok || k == resource.TagService {
					want[k] = v
				}
			}
			got, ok := rankOf(want, known)
			if !ok {
				continue
			}
			if c := got.compare(best); strongest == nil || c > 0 || c == 0 && strings.Compare(r.Name, strongest.Name) < 0 {
				strongest, best = r, got
			}
		}
	}
	out := Permission{About: true}
	if strongest != nil {
		out.By.Policy = strongest
		_, out.Allowed = bestOf(strongest.Spec.(*resource.LegacyPolicy).Sources, p.clients)
	}
	return out
}
