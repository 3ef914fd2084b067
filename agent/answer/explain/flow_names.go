package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// classifierOf returns the names that the resolver on the node of a dataplane has.
func (t *Traffic) classifierOf(p *flowProxy) *names.Classifier {
	dataplane := p.dataplane.Name
	if c := t.classifiers[dataplane]; c != nil {
		return c
	}
	var table *names.Table
	if t.Names != nil {
		table = t.Names(dataplane)
	}
	if table == nil {
		m := t.namesMesh()
		m.Local = []string{dataplane}
		table = names.Build(names.DefaultOptions(), []names.Mesh{m}, nil)
	}
	c := table.Classifier()
	t.classifiers[dataplane] = c
	return c
}

func (t *Traffic) namesMesh() names.Mesh {
	return names.Mesh{View: t.mesh.View, Policies: t.mesh.Policies}
}

// classify returns the class of a name for the workload of a dataplane.
func (t *Traffic) classify(p *flowProxy, name string) (names.Classification, error) {
	c := t.classifierOf(p)
	return c.Classify(name, c.Client(t.namesMesh(), p.dataplane))
}

// resolve finds the address of a name as the resolver answers it. A name that the resolver forwards
// may be that of a service, of one label or in the DNS of a Kubernetes cluster: its address is that
// of the outbound.
func (t *Traffic) resolve(p *flowProxy, d *dialled, port uint16) error {
	var err error
	if d.is, err = t.classify(p, d.host); err != nil {
		return &QuestionError{"to", fmt.Sprintf("the host %q is not a DNS name: %v", clip.Text(d.host, maxShown), err)}
	}
	switch {
	case len(d.is.Addrs) > 0:
		used := p.nearestOutbound(port, func(o *mesh.Outbound) bool { return slices.Contains(d.is.Addrs, o.Address) })
		at := d.is.Addrs[0]
		if used != nil {
			at = used.Address
		}
		d.dst, d.note = netip.AddrPortFrom(at, port), fmt.Sprintf("%s has the address %s", d.host, at)
		if used != nil && used.Port != uint32(port) {
			d.note += fmt.Sprintf(", on which the service uses port %d", used.Port)
		}
		return nil
	case d.is.Hidden && d.is.Owner != nil && len(d.is.Owner.Addrs) > 0:
		at := d.is.Owner.Addrs[0]
		d.dst, d.note = netip.AddrPortFrom(at, port),
			fmt.Sprintf("the resolver hides %s, whose address is %s, from this dataplane", d.host, at)
		return nil
	}
	if isService := p.serviceNamed(d); isService != nil {
		if o := p.nearestOutbound(port, isService); o != nil {
			d.dst = netip.AddrPortFrom(o.Address, uint16(o.Port))
			d.note = fmt.Sprintf("the workload reaches %s at %s", d.host, d.dst)
			return nil
		}
	}
	at := t.unusedAddress()
	d.dst, d.any = netip.AddrPortFrom(at, port), true
	d.note = fmt.Sprintf("the address of %s is unknown: %s represents an address that no rule matches; "+
		"set ip to the address that the client dials", d.host, at)
	if d.is.Class == names.ClassForwarded {
		d.note = "the resolver forwards the query, so " + d.note
	}
	return nil
}

// unusedAddress returns an address for documentation (TEST-NET-1, RFC 5737) that no dataplane of
// the mesh has. It represents an unknown address that no rule matches.
func (t *Traffic) unusedAddress() netip.Addr {
	used := map[string]bool{}
	for _, r := range t.mesh.View.Dataplanes() {
		if dp, ok := r.Spec.(*resource.Dataplane); ok {
			used[dp.Networking.Address] = true
		}
	}
	at := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	for used[at.String()] && at.As4()[3] < 254 {
		at = at.Next()
	}
	return at
}

// nearestOutbound returns an outbound that a filter accepts, if possible with a port, or nil.
func (p *flowProxy) nearestOutbound(port uint16, accepts func(*mesh.Outbound) bool) (out *mesh.Outbound) {
	for i := range p.outbounds {
		o := &p.outbounds[i]
		if accepts(o) && (out == nil || o.Port == uint32(port) && out.Port != o.Port) {
			out = o
		}
	}
	return out
}

// serviceNamed returns a filter for the outbounds of the services that have a name of one label,
// such as backend, or the name of a Service in the cluster of the dataplane. It returns nil for
// names that the meshes own, and for names with a dot that may exist outside the mesh.
func (p *flowProxy) serviceNamed(d *dialled) func(*mesh.Outbound) bool {
	in := clusterName(d.host, p.dataplane.Namespace())
	short := !strings.Contains(d.host, ".")
	if d.is.Class != names.ClassForwarded || !short && in == "" {
		return nil
	}
	return func(o *mesh.Outbound) bool {
		return o.Service.Resource.Kind == mesh.KindMeshService && o.Service.Resource.Name == in ||
			short && slices.Contains(namesOf(o), d.host)
	}
}

// clusterName returns the name of the MeshService that a host means in a Kubernetes cluster for the
// pods of a namespace, or "".
func clusterName(host, namespace string) string {
	host = strings.TrimSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc")
	switch dots := strings.Count(host, "."); {
	case namespace == "" || dots > 1:
		return ""
	case dots == 0:
		return host + "." + namespace
	}
	return host
}

// outboundsOf returns a filter for the outbounds of the service that owns a name.
func (t *Traffic) outboundsOf(n *names.Name) func(*mesh.Outbound) bool {
	apart := t.mesh.View.HostAddresses()
	return func(o *mesh.Outbound) bool {
		s := o.Service
		switch {
		case n.Mesh != t.mesh.View.Name || n.Origin == mesh.OriginPolicy:
			return false
		case n.Origin == mesh.OriginHost, n.Origin == mesh.OriginVirtual && o.Address.IsValid():
			return slices.Contains(n.Addrs, o.Address)
		case apart[o.Address]:
			return false
		case n.Kind == mesh.KindTag:
			return s.ID.Kind == n.Kind && s.Tag == n.Tag
		}
		return s.ID.Kind == n.Kind && s.Resource == n.Resource
	}
}

// unreachable returns the service of the mesh that is dialed by name or address but that the
// dataplane does not reach, and the reason; nil if there is none. If the address of the name is
// unknown, it becomes that of the service.
func (p *flowProxy) unreachable(t *Traffic, d *dialled) (*mesh.Service, policy.ReachVerdict) {
	none := policy.ReachVerdict{}
	isService := p.serviceNamed(d)
	if t.mesh.Policies == nil || d.any && isService == nil {
		return nil, none
	}
	var reach *policy.Reach
	var found *mesh.Service
	var why policy.ReachVerdict
	for _, s := range t.mesh.View.Services() {
		if !s.VIP.IsValid() || d.any && !isService(&mesh.Outbound{Service: s}) ||
			!d.any && s.VIP != d.dst.Addr() && s.VIP6 != d.dst.Addr() {
			continue
		}
		if reach == nil {
			reach = t.mesh.Policies.Reach(p.dataplane)
		}
		v := reach.Of(s)
		if v.Reachable {
			return nil, none
		}
		if found == nil || s.Port == uint32(d.dst.Port()) && found.Port != s.Port {
			found, why = s, v
		}
	}
	if found != nil && d.any {
		d.dst, d.any = netip.AddrPortFrom(found.VIP, d.dst.Port()), false
		d.note = fmt.Sprintf("%s has the address %s, for which the dataplane has no outbound", d.host, found.VIP)
	}
	return found, why
}

// isOutside reports whether a name is the host of a service outside the mesh.
func isOutside(s *mesh.Service, host string) bool {
	return s.Outside != nil &&
		slices.ContainsFunc(s.Outside.List, func(e mesh.Endpoint) bool { return strings.ToLower(e.Address) == host })
}

// meshNameOf says by which name the mesh has a service whose external host or name without a suffix
// is host. It returns "" if there is none.
func (t *Traffic) meshNameOf(p *flowProxy, host string, port uint16) string {
	bare := strings.TrimSuffix(host, meshSuffix)
	var is *mesh.Service
	for _, s := range t.mesh.View.Services() {
		if (s.ID.Kind == mesh.KindTag && isOutside(s, host) || slices.Contains(namesOf(&mesh.Outbound{Service: s}), bare)) &&
			(is == nil || uses(s, port) && !uses(is, port)) {
			is = s
		}
	}
	if is == nil {
		return ""
	}
	at := is.Port
	if uses(is, port) {
		at = uint32(port)
	}
	for _, n := range t.classifierOf(p).Table.Names {
		if n.Origin != mesh.OriginVirtual && n.Origin != mesh.OriginHost && n.Name != host &&
			t.outboundsOf(n)(&mesh.Outbound{Service: is}) {
			return fmt.Sprintf("the mesh has %s as %s:%d", destinationOf(is), n.Name, at)
		}
	}
	return ""
}

// uses reports whether the virtual address of a service uses a port.
func uses(s *mesh.Service, port uint16) bool {
	return s.Port == uint32(port) ||
		slices.ContainsFunc(s.Aliases, func(a netip.AddrPort) bool { return !a.Addr().IsValid() && a.Port() == port })
}

// ownerOfAddress returns the name of the owner of a virtual address, and the ports in use; "" if
// the mesh does not use the address.
func (t *Traffic) ownerOfAddress(at netip.Addr) (name string, ports []uint32) {
	for _, s := range t.mesh.View.Services() {
		if s.VIP != at && s.VIP6 != at {
			continue
		}
		name, ports = s.ID.Name, append(ports, s.Port)
		for _, a := range s.Aliases {
			if !a.Addr().IsValid() {
				ports = append(ports, uint32(a.Port()))
			}
		}
	}
	if host, used := t.mesh.View.HostAt(at); host != "" {
		return host, used
	}
	return name, ports
}

// explainVirtualAddress explains a connection through passthrough to a virtual address: nothing
// outside the mesh has it.
func (t *Traffic) explainVirtualAddress(p *flowProxy, flow *Flow, d *dialled) {
	name, used := t.ownerOfAddress(d.dst.Addr())
	unassigned := flow.unassigned()
	switch {
	case !isPassthrough(flow.Listener) || flow.Verdict != VerdictAllowed && !unassigned:
		return
	case name == "" && unassigned:
		flow.Reason = fmt.Sprintf("no service has the virtual address %s: the proxy closes the connection", d.dst.Addr())
		return
	case name == "":
		return
	}
	flow.noAnswer()
	if slices.Contains(used, uint32(d.dst.Port())) {
		flow.Reason = fmt.Sprintf("the proxy does not listen on %s, a virtual address of %s", d.dst, name)
		t.nameOutbound(p, flow, d)
		return
	}
	ports := make([]string, len(used))
	for i, p := range used {
		ports[i] = strconv.FormatUint(uint64(p), 10)
	}
	flow.Reason = fmt.Sprintf("port %d of the virtual address of %s is not in use; available ports: %s",
		d.dst.Port(), name, strings.Join(ports, ", "))
}

// maxListed is the maximum number of outbounds that a reason lists.
const maxListed = 5

// listOutbounds adds the addresses of the outbounds to the reason of a connection to an address on
// which no listener is bound.
func (p *flowProxy) listOutbounds(flow *Flow) {
	if len(p.outbounds) == 0 {
		flow.Reason += "; the dataplane has no outbounds"
		return
	}
	var list []string
	for _, o := range p.outbounds[:min(len(p.outbounds), maxListed)] {
		list = append(list, fmt.Sprintf("%s (%s)", netip.AddrPortFrom(o.Address, uint16(o.Port)),
			cmp.Or(o.Service.Tag, o.Service.Resource.Name)))
	}
	if more := len(p.outbounds) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	flow.Reason += "; the outbounds of the dataplane are " + strings.Join(list, ", ")
}

// explainNoProxy explains a connection of a dataplane without transparent proxy to an address at
// which no listener is bound.
func (t *Traffic) explainNoProxy(p *flowProxy, flow *Flow, d *dialled) {
	name, _ := t.ownerOfAddress(d.dst.Addr())
	if name == "" && (d.is.Owner == nil || d.any) {
		flow.Verdict = VerdictAllowed
		flow.Reason = fmt.Sprintf("the dataplane has no transparent proxy and no outbound at %s: the connection "+
			"bypasses its proxy, so no policy applies", d.dst)
		return
	}
	reason := fmt.Sprintf("no listener is bound to %s, a virtual address of %s: the dataplane has no "+
		"transparent proxy", d.dst, cmp.Or(name, d.host))
	flow.Reason = reason
	if t.nameOutbound(p, flow, d); flow.Reason == reason {
		p.listOutbounds(flow)
	}
}

// nameOutbound adds the outbound of the service that owns the dialed name.
func (t *Traffic) nameOutbound(p *flowProxy, flow *Flow, d *dialled) {
	if d.is.Owner == nil {
		return
	}
	if o := p.nearestOutbound(d.dst.Port(), t.outboundsOf(d.is.Owner)); o != nil {
		flow.Reason += fmt.Sprintf("; dial %s, the address of its outbound", netip.AddrPortFrom(o.Address, uint16(o.Port)))
	}
}
