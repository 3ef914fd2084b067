package policy

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/servername"
)

// admission determines which services admit one client.
type admission struct {
	g       *guard
	clients []map[string]string // its sets of tags
	ids     []string            // the SPIFFE IDs in its certificate
	mesh    string
	items   map[*guarded][][]item
	decided map[decisionKey]admitted
}

// decisionKey identifies a decision: a class, and the server name if the decision depends on it.
type decisionKey struct {
	*class
	serverName string
}

// admitted is the decision of a class's policies about a client.
type admitted struct {
	yes bool
	by  Origin // the deciding item; without policy if none selects the client
}

// admission returns nil if permissions restrict nothing.
func (x *Index) admission(dp *resource.Dataplane) *admission {
	if x.guard == nil {
		return nil
	}
	a := &admission{g: x.guard, mesh: x.View.Name, items: map[*guarded][][]item{}, decided: map[decisionKey]admitted{}}
	for _, tags := range TagSets(x.View, dp) {
		if tags != nil {
			a.clients = append(a.clients, tags)
			a.ids = append(a.ids, resource.SPIFFEID(x.View.Name, tags[resource.TagService]))
		}
	}
	return a
}

// itemsOf returns, for each tag set of the client, the items of a policy that select it.
func (a *admission) itemsOf(p *guarded) [][]item {
	out, ok := a.items[p]
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
		a.items[p] = out
	}
	return out
}

// class evaluates a class. It admits the client if it admits one of the client's tag sets.
func (a *admission) class(c *class, serverName string) admitted {
	key := decisionKey{c, serverName}
	if d, ok := a.decided[key]; ok {
		return d
	}
	var out admitted
	var about [][]item // by policy
	for _, p := range c.policies {
		if items := a.itemsOf(p); items != nil {
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
	out = a.rules(c, Client{a.ids, serverName}, out)
	a.decided[key] = out
	return out
}

// rules combines the decisions of spec.rules and from. If rules select every workload of the
// class, they decide alone. If they may select only some, a workload admits the client by either.
func (a *admission) rules(c *class, client Client, from admitted) admitted {
	var confs, always []resource.Conf
	var origins []Origin
	for _, p := range c.policies {
		for _, it := range p.rules {
			confs, origins = append(confs, it.conf), append(origins, it.origin)
			if p.whole(c) {
				always = append(always, it.conf)
			}
		}
	}
	if len(confs) == 0 || a.g.decide == nil {
		return from
	}
	d, i := a.g.decide(confs, client)
	if d == Denied && len(always) < len(confs) {
		if e, _ := a.g.decide(always, client); e == Admitted { // a workload without the denying entry
			return admitted{true, origins[i]}
		}
	}
	switch {
	case d == Admitted:
		return admitted{true, origins[i]}
	case len(always) == 0 && from.yes:
		return from
	case d == Denied:
		return admitted{false, origins[i]}
	}
	return admitted{false, origins[len(origins)-1]}
}

// whole reports whether a policy selects every workload of the class.
func (p *guarded) whole(c *class) bool {
	return !p.dynamic && slices.ContainsFunc(p.want, func(w wanted) bool {
		all := true
		w.each(func(k, v string) { all = all && (c.tags[k] == v || v == "*" && c.tags[k] != "") })
		return all
	})
}

// client evaluates one tag set. Later items take precedence.
func (a *admission) client(c *class, i int) (by Origin, ok bool) {
	var confs []resource.Conf
	for _, p := range c.policies {
		if items := a.itemsOf(p); items != nil {
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

// of evaluates a service. It returns false if no permission can select the service.
func (a *admission) of(s *mesh.Service) (admitted, bool) {
	if s.Index < 0 || s.Index >= len(a.g.of) || a.g.of[s.Index] == nil {
		return admitted{}, false
	}
	var out admitted
	serverName := ""
	if a.g.names {
		serverName = strings.ToLower(servername.Of(a.mesh, &mesh.Outbound{Service: s}))
	}
	for _, c := range a.g.of[s.Index] {
		d := a.class(c, serverName)
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

// Outbounds returns the reachable services of a dataplane, like [mesh.View.Outbounds]. With
// AutoReachable, it omits the virtual addresses of services whose permissions admit none of its
// inbounds, unless the dataplane lists its reachable services of that type. Services outside the
// mesh remain, without endpoints if none admits the dataplane.
func (x *Index) Outbounds(dataplane *resource.Resource) ([]mesh.Outbound, []mesh.Warning) {
	dp, ok := dataplane.Spec.(*resource.Dataplane)
	if !ok || x.guard == nil {
		return x.View.Outbounds(dataplane)
	}
	return x.View.OutboundsIf(dataplane, x.admission(dp).admits)
}

// ReachDigest is a hash of the permissions that affect the reachable services of a dataplane. With
// equal services and digests, a dataplane has the same outbounds and the same endpoints outside the
// mesh. It is zero if permissions have no effect.
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

// AutoReachable reports whether permissions restrict the reachable services of proxies, and the
// setting or reason that determines it.
func (x *Index) AutoReachable() (on bool, why string) {
	switch {
	case x.auto && x.View.Spec.MTLSEnabled() == nil:
		return false, x.autoBy + " enables it, but the mesh has no mTLS and therefore admits every client"
	case x.auto && x.guard == nil:
		return false, x.autoBy + " enables it, but no permission kind exists"
	}
	return x.auto, x.autoBy
}

// Reach determines the reachable services of one dataplane, and the reasons.
type Reach struct {
	x         *Index
	lists     *mesh.Reach
	admission *admission // nil if permissions restrict nothing
	outbounds map[mesh.ServiceID]int
}

// Reach prepares the evaluation for a dataplane of the view. The result is not safe for concurrent
// use.
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

// ReachVerdict reports whether a dataplane reaches a service, and why.
type ReachVerdict struct {
	mesh.Verdict
	By Origin // the deciding permission; without policy if none decides
}

// Of reports whether the dataplane has an outbound to a service of the view. It is consistent with
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
