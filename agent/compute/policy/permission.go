package policy

import (
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/precedence"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Permissions determines which services admit one dataplane, whether or not that restricts its
// reachable services.
type Permissions struct {
	admission *admission
	x         *Index
	clients   []map[string]string
	legacy    []*resource.Resource // policies of the legacy kinds that the permission kind replaces
}

// Permission is the result of evaluating the permissions of a service.
type Permission struct {
	Allowed bool
	// About is false if no permission can select the service, so that every client is admitted.
	About bool
	By    Origin // the deciding item; without policy if none selects the client
}

// Permissions prepares the evaluation for a dataplane of the view. It returns nil if the mesh
// admits everyone. set must be the resource set of the index. The result is not safe for concurrent
// use.
func (x *Index) Permissions(set *resource.Set, dataplane *resource.Resource) *Permissions {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok {
		return nil
	}
	copied := *x
	if copied.guard == nil {
		copied.guard = x.newGuard(set, nil)
	}
	if copied.guard == nil {
		return nil
	}
	out := &Permissions{x: x, admission: copied.admission(dp)}
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

// Of reports whether the dataplane may use a service of the view. Legacy policies decide if no
// other policy selects the service.
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

// ruled reports whether some policy selects the service, for any client.
func (p *Permissions) ruled(s *mesh.Service) bool {
	return slices.ContainsFunc(p.admission.g.of[s.Index], func(c *class) bool { return len(c.policies) > 0 })
}

// byLegacy evaluates the strongest legacy policy of a service. As for other policies, destination
// tags count only if the service is known by them.
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
	var best precedence.Tags
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
			got, ok := precedence.Match(want, known)
			if !ok {
				continue
			}
			if c := got.Compare(best); strongest == nil || c > 0 || c == 0 && strings.Compare(r.Name, strongest.Name) < 0 {
				strongest, best = r, got
			}
		}
	}
	out := Permission{About: true}
	if strongest != nil {
		out.By.Policy = strongest
		_, out.Allowed = precedence.Best(strongest.Spec.(*resource.LegacyPolicy).Sources, p.clients)
	}
	return out
}
