package policy

import (
	"crypto/sha256"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// admission decides for one client which services admit it.
type admission struct {
	g       *guard
	clients []map[string]string // its sets of tags
	ids     []string            // the SPIFFE IDs in its certificate
	said    map[*guarded][][]item
	decided map[*class]admitted
}

// admitted is what the policies of a class say to a client.
type admitted struct {
	yes bool
	by  Origin // what decides; its policy is nil where none is about the client
}

// admission is nil where permissions restrict nothing.
func (x *Index) admission(dp *resource.Dataplane) *admission {
	if x.guard == nil {
		return nil
	}
	a := &admission{g: x.guard, said: map[*guarded][][]item{}, decided: map[*class]admitted{}}
	for _, tags := range tagSets(x.View, dp) {
		if tags != nil {
			a.clients = append(a.clients, tags)
			a.ids = append(a.ids, resource.SPIFFEID(x.View.Name, tags[resource.TagService]))
		}
	}
	return a
}

// items are those of a policy that are about each set of tags of the client.
func (a *admission) items(p *guarded) [][]item {
	out, ok := a.said[p]
	if !ok {
		for c, tags := range a.clients {
			for _, it := range p.items {
				if !slices.ContainsFunc(it.subset, func(t Tag) bool {
					return t.Value != "*" && tags[t.Key] != t.Value || tags[t.Key] == ""
				}) {
					if out == nil {
						out = make([][]item, len(a.clients))
					}
					out[c] = append(out[c], it)
				}
			}
		}
		a.said[p] = out
	}
	return out
}

// class decides about a class: one set of tags that is admitted is enough.
func (a *admission) class(c *class) admitted {
	if d, ok := a.decided[c]; ok {
		return d
	}
	var out admitted
	var about [][]item // by policy
	for _, p := range c.policies {
		if items := a.items(p); items != nil {
			about = append(about, slices.Concat(items...))
		}
	}
	if len(about) > 0 {
		last := about[len(about)-1]
		out.by = last[len(last)-1].origin
		for i := range a.clients {
			if by, ok := a.client(c, i); ok {
				out = admitted{true, by}
				break
			}
		}
	}
	out = a.rules(c, out, len(about) > 0)
	a.decided[c] = out
	return out
}

// rules adds what entries of spec.rules say to what those of from do. spoken is true where one of
// from is about the client.
func (a *admission) rules(c *class, from admitted, spoken bool) admitted {
	var confs []resource.Conf
	var origins []Origin
	for _, p := range c.policies {
		for _, it := range p.rules {
			confs, origins = append(confs, it.conf), append(origins, it.origin)
		}
	}
	if len(confs) == 0 || a.g.decide == nil {
		return from
	}
	switch d, i := a.g.decide(confs, a.ids); {
	case d == Denied:
		return admitted{false, origins[i]}
	case d == Admitted && !spoken:
		return admitted{true, origins[i]}
	}
	return from
}

// client decides about one set of tags. Later items take precedence.
func (a *admission) client(c *class, i int) (by Origin, ok bool) {
	var confs []resource.Conf
	for _, p := range c.policies {
		if items := a.items(p); items != nil {
			for _, it := range items[i] {
				confs = append(confs, it.conf)
				if a.g.admits(it.conf) {
					by = it.origin
				}
			}
		}
	}
	return by, len(confs) > 0 && a.g.admits(resource.Merge(confs...))
}

// of decides about a service. False where no permission can be about it.
func (a *admission) of(s *mesh.Service) (admitted, bool) {
	if s.Index < 0 || s.Index >= len(a.g.of) || a.g.of[s.Index] == nil {
		return admitted{}, false
	}
	var out admitted
	for _, c := range a.g.of[s.Index] {
		d := a.class(c)
		if d.yes {
			return d, true
		}
		if out.by.Policy == nil {
			out = d
		}
	}
	return out, true
}

func (a *admission) admits(s *mesh.Service) bool {
	d, subject := a.of(s)
	return d.yes || !subject
}

// Outbounds returns what a dataplane may reach, as [mesh.View.Outbounds] does. With AutoReachable
// it leaves out the virtual addresses of services whose permissions admit none of its inbounds,
// unless the dataplane itself lists what it reaches of their sort. Services outside the mesh stay,
// without endpoints where none admits it.
func (x *Index) Outbounds(dataplane *resource.Resource) ([]mesh.Outbound, []mesh.Warning) {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok || x.guard == nil {
		return x.View.Outbounds(dataplane)
	}
	return x.View.OutboundsIf(dataplane, x.admission(dp).admits)
}

// ReachDigest is a hash over what the permissions say of what a dataplane reaches, beside the
// services: with equal ones it has the same outbounds, with the same endpoints outside of the mesh.
// It is zero where they say nothing.
func (x *Index) ReachDigest(dataplane *resource.Resource) [32]byte {
	out := x.OutsideDigest()
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok || x.guard == nil || dp.Networking.TransparentProxying == nil {
		return out
	}
	if services, backends := mesh.Lists(dp); services && backends {
		return out
	}
	return sha256.Sum256(append(out[:], x.guard.digest[:]...))
}

// AutoReachable reports whether permissions restrict what the proxies of the mesh reach, and by
// what that is so or why it is not.
func (x *Index) AutoReachable() (on bool, why string) {
	switch {
	case x.auto && x.View.Spec.MTLSEnabled() == nil:
		return false, x.autoBy + " has it on, but the mesh has no mutual TLS, and so keeps nobody out"
	case x.auto && x.guard == nil:
		return false, x.autoBy + " has it on, but there is no kind of permission"
	}
	return x.auto, x.autoBy
}

// Reach says what one dataplane reaches, and why.
type Reach struct {
	x         *Index
	lists     *mesh.Reach
	admission *admission // nil: permissions restrict nothing
	outbounds map[mesh.ServiceID]int
}

// Reach prepares answers about a dataplane of the view. It is for one goroutine.
func (x *Index) Reach(dataplane *resource.Resource) *Reach {
	out := &Reach{x: x, lists: x.View.Reach(dataplane), outbounds: map[mesh.ServiceID]int{}}
	if dp, ok := dataplane.Spec.(*resource.Dataplane); ok {
		out.admission = x.admission(dp)
	}
	x.View.EachOutbound(dataplane, func(i int, s *mesh.Service) {
		if _, ok := out.outbounds[s.ID]; !ok {
			out.outbounds[s.ID] = i
		}
	})
	return out
}

// ReachVerdict says whether a dataplane reaches a service, and why.
type ReachVerdict struct {
	mesh.Verdict
	By Origin // the permission that decides; without policy where none does
}

// Of says whether the dataplane has an outbound to a service of the view. It agrees with
// [Index.Outbounds].
func (r *Reach) Of(s *mesh.Service) ReachVerdict {
	if cause, no := r.x.View.Unserved(s); no {
		return ReachVerdict{Verdict: mesh.Verdict{Cause: cause, Entry: -1}}
	}
	v := ReachVerdict{Verdict: r.lists.Of(s)}
	if v.Cause == mesh.CauseOpen && r.admission != nil {
		switch d, subject := r.admission.of(s); {
		case !subject:
			v.Cause = mesh.CauseNoSubject
		case d.yes:
			v.Cause, v.By = mesh.CausePermission, d.by
		default:
			v.Reachable, v.Cause, v.By = false, mesh.CauseNoPermission, d.by
		}
	}
	if i, ok := r.outbounds[s.ID]; ok && !v.Reachable {
		return ReachVerdict{Verdict: mesh.Verdict{Reachable: true, Cause: mesh.CauseOutbound, Entry: i}}
	}
	return v
}
