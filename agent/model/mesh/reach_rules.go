package mesh

import (
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Cause says why a dataplane reaches, or does not reach, a service at its virtual address.
type Cause string

// Causes. The policy package sets those that depend on policies.
const (
	CauseOpen     Cause = "open"     // nothing restricts the dataplane
	CauseListed   Cause = "listed"   // by name, in reachableServices or reachableBackends.refs
	CauseLabels   Cause = "labels"   // by the labels of an entry of reachableBackends.refs
	CauseOutbound Cause = "outbound" // an outbound of the dataplane leads to it, at another address

	CausePermission   Cause = "permission"    // a permission admits the dataplane
	CauseNoSubject    Cause = "no-subject"    // permissions restrict outbounds, and none can apply to this service
	CauseNoPermission Cause = "no-permission" // no permission admits the dataplane

	CauseNotListed Cause = "not-listed" // the dataplane has a list without this service
	CauseMode      Cause = "mode"       // the mode of the mesh excludes its kind
	CauseNoAddress Cause = "no-address" // it has no virtual address
	CauseNoEgress  Cause = "no-egress"  // it is outside the mesh, and the zone has no egress
	CauseNoProxy   Cause = "no-proxy"   // the dataplane has no transparent proxy
)

// Verdict says whether a dataplane reaches a service, and why.
type Verdict struct {
	Reachable bool
	Cause     Cause
	Entry     int // index in the list or in the outbounds if an entry decides, else -1
}

// Reach holds the reachability lists of one dataplane, parsed once.
type Reach struct {
	view      *View
	dataplane *resource.Resource
	tp        *resource.TransparentProxying // nil without a transparent proxy
	mode      string
	services  map[string]int // index in reachableServices by name; nil means all
	byName    map[resource.Key][]int
	byLabels  []int // entries of refs that select by labels
}

// Reach parses the reachability lists of a dataplane.
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

// Of reports whether the dataplane's lists let it reach a service of the view at its virtual
// address. If no list applies to the service, the cause is CauseOpen, and policies may still
// restrict it.
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
		// Without references every service resource is reachable, with two exceptions: the mode
		// that requires references, and, as in Kuma, dataplanes that list values of
		// kuma.io/service. The mode Disabled derives no MeshServices from tags, but those that
		// somebody wrote are served.
		switch {
		case r.mode == resource.MeshServicesReachableBackends:
			return no(CauseMode)
		case r.services != nil:
			return no(CauseNotListed)
		}
		return Verdict{Reachable: true, Cause: CauseOpen, Entry: -1}
	}
	return r.listed(s)
}

// listed finds the first reference that selects a service resource.
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

// labelled reports whether a service resource has all labels of want.
func (s *Service) labelled(want map[string]string) bool {
	for k, val := range want {
		if have, ok := s.Labels[k]; !ok || have != val {
			return false
		}
	}
	return true
}

// virtual appends the outbounds at virtual addresses that the dataplane reaches.
func (r *Reach) virtual(out []Outbound, admit func(*Service) bool) []Outbound {
	for _, s := range r.view.services {
		verdict := r.Of(s)
		if !verdict.Reachable || verdict.Cause == CauseOpen && admit != nil && !admit(s) {
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

// at appends an outbound at an address if the dataplane's transparent proxy uses that IP family.
func (r *Reach) at(out []Outbound, ob Outbound, addr netip.Addr, port uint32) []Outbound {
	if r.tp.IPFamilyMode == resource.IPFamilyIPv6 && addr.Is4() || r.tp.IPFamilyMode == resource.IPFamilyIPv4 &&
		addr.Is6() {
		return out
	}
	ob.Address, ob.Port = addr, port
	return append(out, ob)
}

// VirtualOutbound returns the outbound at the virtual address of a service.
func (v *View) VirtualOutbound(s *Service) Outbound {
	out := Outbound{Address: s.VIP, Port: s.Port, Service: s}
	if s.ID.Kind == KindTag {
		out.Tags = map[string]string{resource.TagService: s.Tag}
	}
	return out
}

// EachOutbound calls f for each outbound of the dataplane that leads to a service, in order.
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

// Unserved returns the reason why no dataplane of this zone can have an outbound to a service. The
// result is false if one can.
func (v *View) Unserved(s *Service) (Cause, bool) {
	// The egress routes HTTP to an external service. Without an egress there is no listener for it.
	if s.ID.Kind == KindMeshExternalService && s.Protocol.HTTP() && len(v.egress.List) == 0 {
		return CauseNoEgress, true
	}
	return "", false
}

// Lists reports whether a list of the dataplane restricts tag services, and service resources.
func Lists(dp *resource.Dataplane) (services, backends bool) {
	tp := dp.Networking.TransparentProxying
	if tp == nil {
		return false, false
	}
	services = len(tp.ReachableServices) > 0
	return services, services || tp.ReachableBackends != nil
}
