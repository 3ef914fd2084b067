package mesh

import (
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Cause says by what a dataplane reaches a service at its virtual address, or what keeps it from
// that.
type Cause string

// Causes. Those of the policies are given by the policies.
const (
	CauseOpen     Cause = "open"     // nothing restricts what the dataplane reaches
	CauseListed   Cause = "listed"   // by name, in reachableServices or reachableBackends.refs
	CauseLabels   Cause = "labels"   // by the labels of an entry of reachableBackends.refs
	CauseOutbound Cause = "outbound" // an outbound of the dataplane leads to it, at an address of its own

	CausePermission   Cause = "permission"    // a permission admits the dataplane
	CauseNoSubject    Cause = "no-subject"    // permissions restrict what is reached, and none can be about this service
	CauseNoPermission Cause = "no-permission" // none admits the dataplane

	CauseNotListed Cause = "not-listed" // there is a list, and the service is not on it
	CauseMode      Cause = "mode"       // the mode of the mesh leaves its kind out
	CauseNoAddress Cause = "no-address" // it has no virtual address
	CauseNoEgress  Cause = "no-egress"  // it is outside of the mesh, and there is no egress to lead there
	CauseNoProxy   Cause = "no-proxy"   // the dataplane has no transparent proxy
)

// Verdict says whether a dataplane reaches a service, and why.
type Verdict struct {
	Reachable bool
	Cause     Cause
	Entry     int // of the list or the outbounds, where one decides; else -1
}

// Reach is what one dataplane lists of what it reaches, read once.
type Reach struct {
	view      *View
	dataplane *resource.Resource
	tp        *resource.TransparentProxying // nil: it has no transparent proxy
	mode      string
	services  map[string]int // index in reachableServices by name; nil: all
	byName    map[resource.Key][]int
	byLabels  []int // entries of refs by labels
}

// Reach reads what a dataplane lists.
func (v *View) Reach(r *resource.Resource) *Reach {
	out := &Reach{view: v, dataplane: r, mode: v.Spec.ServicesMode()}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok || dp.Networking.TransparentProxying == nil {
		return out
	}
	out.tp = dp.Networking.TransparentProxying
	if n := len(out.tp.ReachableServices); n > 0 {
		out.services = make(map[string]int, n)
		for i, s := range slices.Backward(out.tp.ReachableServices) {
			out.services[s] = i
		}
	}
	if out.tp.ReachableBackends != nil {
		out.byName = map[resource.Key][]int{}
		for i := range out.tp.ReachableBackends.Refs {
			ref := &out.tp.ReachableBackends.Refs[i]
			if len(ref.Labels) > 0 {
				out.byLabels = append(out.byLabels, i)
				continue
			}
			for _, name := range Qualified(r, ref.Name, ref.Namespace) {
				k := resource.Key{Kind: ref.Kind, Mesh: v.Name, Name: name}
				out.byName[k] = append(out.byName[k], i)
			}
		}
	}
	return out
}

// Of says whether the dataplane reaches a service of the view at its virtual address, by what it
// lists alone. Where it lists nothing that is about the service the cause is CauseOpen, and
// something else may restrict it.
func (r *Reach) Of(s *Service) Verdict {
	no := func(c Cause) Verdict { return Verdict{Cause: c, Entry: -1} }
	switch {
	case r.tp == nil:
		return no(CauseNoProxy)
	case !s.VIP.IsValid():
		return no(CauseNoAddress)
	case s.ID.Kind == KindTag && r.mode == resource.MeshServicesExclusive:
		return no(CauseMode)
	case s.ID.Kind == KindTag && r.services == nil:
		return Verdict{Reachable: true, Cause: CauseOpen, Entry: -1}
	case s.ID.Kind == KindTag:
		if i, ok := r.services[s.Tag]; ok {
			return Verdict{Reachable: true, Cause: CauseListed, Entry: i}
		}
		return no(CauseNotListed)
	case r.byName == nil:
		// Without references every service resource is reachable, except in the mode that wants them
		// spelled out, and, as in the reference, of a dataplane that restricts itself to values of
		// kuma.io/service.
		switch {
		case r.mode == resource.MeshServicesReachableBackends || r.mode == resource.MeshServicesDisabled &&
			s.ID.Kind == KindMeshService:
			return no(CauseMode)
		case r.services != nil:
			return no(CauseNotListed)
		}
		return Verdict{Reachable: true, Cause: CauseOpen, Entry: -1}
	}
	return r.listed(s)
}

// listed looks for the first reference that selects a service resource.
func (r *Reach) listed(s *Service) Verdict {
	out := Verdict{Cause: CauseNotListed, Entry: -1}
	refs := r.tp.ReachableBackends.Refs
	for _, i := range r.byName[s.Resource] {
		if refs[i].Port == nil || *refs[i].Port == s.Port {
			out = Verdict{Reachable: true, Cause: CauseListed, Entry: i}
			break
		}
	}
	for _, i := range r.byLabels {
		if out.Reachable && out.Entry < i {
			break
		}
		if refs[i].Kind == s.ID.Kind && s.labelled(refs[i].Labels) {
			return Verdict{Reachable: true, Cause: CauseLabels, Entry: i}
		}
	}
	return out
}

// labelled reports whether a service resource has labels.
func (s *Service) labelled(want map[string]string) bool {
	for k, val := range want {
		if have, ok := s.Labels[k]; !ok || have != val {
			return false
		}
	}
	return true
}

// virtual adds the outbounds at virtual addresses that the dataplane reaches.
func (r *Reach) virtual(out []Outbound, keep func(*Service) bool) []Outbound {
	for _, s := range r.view.services {
		verdict := r.Of(s)
		if !verdict.Reachable || verdict.Cause == CauseOpen && keep != nil && !keep(s) {
			continue
		}
		ob := r.view.VirtualOutbound(s)
		vip6 := r.view.IPv6 && s.VIP6.IsValid()
		out = r.at(out, ob, s.VIP, s.Port)
		if vip6 {
			out = r.at(out, ob, s.VIP6, s.Port)
		}
		for _, a := range s.Aliases {
			if a.Addr().IsValid() {
				out = r.at(out, ob, a.Addr(), uint32(a.Port()))
				continue
			}
			out = r.at(out, ob, s.VIP, uint32(a.Port()))
			if vip6 {
				out = r.at(out, ob, s.VIP6, uint32(a.Port()))
			}
		}
	}
	return out
}

// at adds an outbound at an address, where the transparent proxy of the dataplane takes addresses
// of that family.
func (r *Reach) at(out []Outbound, ob Outbound, addr netip.Addr, port uint32) []Outbound {
	if r.tp.IPFamilyMode == resource.IPFamilyIPv6 && addr.Is4() || r.tp.IPFamilyMode == resource.IPFamilyIPv4 &&
		addr.Is6() {
		return out
	}
	ob.Address, ob.Port = addr, port
	return append(out, ob)
}

// VirtualOutbound is the outbound at the virtual address of a service.
func (v *View) VirtualOutbound(s *Service) Outbound {
	out := Outbound{Address: s.VIP, Port: s.Port, Service: s}
	if s.ID.Kind == KindTag {
		out.Tags = map[string]string{resource.TagService: s.Tag}
	}
	return out
}

// EachOutbound calls f for each outbound of the dataplane that leads to a service, in their order.
func (v *View) EachOutbound(r *resource.Resource, f func(i int, s *Service)) {
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return
	}
	for i := range dp.Networking.Outbound {
		o := &dp.Networking.Outbound[i]
		if o.BackendRef == nil {
			f(i, v.tagService(o.Tags[resource.TagService]))
		} else if s := v.backend(r, o.BackendRef); s != nil {
			f(i, s)
		}
	}
}

// Unserved says why no dataplane of this zone has an outbound to a service, whatever it lists;
// false where it may have.
func (v *View) Unserved(s *Service) (Cause, bool) {
	// HTTP to an external service is routed by the egress; there is nothing to listen for without one.
	if s.ID.Kind == KindMeshExternalService && s.Protocol.HTTP() && len(v.egress.List) == 0 {
		return CauseNoEgress, true
	}
	return "", false
}

// Lists reports of which services a list of the dataplane decides whether it reaches them: tag
// services, and service resources.
func Lists(dp *resource.Dataplane) (services, backends bool) {
	tp := dp.Networking.TransparentProxying
	if tp == nil {
		return false, false
	}
	services = len(tp.ReachableServices) > 0
	return services, services || tp.ReachableBackends != nil
}
