package explain

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// anyAddress represents an unknown address that no rule matches (TEST-NET-1, RFC 5737).
const anyAddress = "192.0.2.1"

// clientPort represents an ephemeral port of a client (RFC 6335, section 6).
const clientPort = 49152

// maxShown limits the bytes of a question that an error repeats.
const maxShown = 100

// maxHost is the longest host name in DNS (RFC 1035, section 2.3.4).
const maxHost = 253

// dialled is the destination that a workload dials.
type dialled struct {
	host string         // as the client specifies it, in lower case
	name bool           // the host is a name
	dst  netip.AddrPort // as the kernel sees it
	note string         // how dst was derived from host
	any  bool           // the address is unknown; dst is anyAddress
}

// dial reads a target and finds the address of a name in the outbounds of the dataplane.
func (p *flowProxy) dial(v *mesh.View, t *Target) (dialled, error) {
	host, port, err := splitTarget(t.To)
	if err != nil {
		return dialled{}, err
	}
	d := dialled{host: strings.TrimSuffix(strings.ToLower(host), ".")}
	addr, err := parseIP(host)
	if d.name = err != nil; !d.name {
		d.host = addr.String()
		if t.IP != "" {
			return dialled{}, &QuestionError{"ip",
				fmt.Sprintf("%q cannot be set because to contains the address %s; use a name in to or omit ip", t.IP, host)}
		}
		d.dst = netip.AddrPortFrom(addr, port)
		return d, nil
	}
	if reason := hostFault(d.host); reason != "" {
		return dialled{}, &QuestionError{"to", fmt.Sprintf("the host %q %s", clip.Text(host, maxShown), reason)}
	}
	if t.IP != "" {
		if addr, err = parseIP(t.IP); err != nil {
			return dialled{}, &QuestionError{"ip", fmt.Sprintf("%q is not an IP address", clip.Text(t.IP, maxShown))}
		}
		d.dst, d.note = netip.AddrPortFrom(addr, port), "the client dials "+t.IP
		return d, nil
	}
	p.resolve(v, &d, port)
	return d, nil
}

func splitTarget(to string) (string, uint16, error) {
	host, text, err := net.SplitHostPort(to)
	if _, bare, is := strings.Cut(to, "://"); is && bare != "" {
		bare, _, _ = strings.Cut(bare, "/")
		return "", 0, &QuestionError{"to", fmt.Sprintf("%q is a URL, not HOST:PORT; omit its scheme and path: %s",
			clip.Text(to, maxShown), clip.Text(bare, maxShown))}
	}
	if err != nil || host == "" {
		return "", 0, &QuestionError{"to",
			fmt.Sprintf("%q is not HOST:PORT; use [IPv6]:PORT, IPv4:PORT, or NAME:PORT", clip.Text(to, maxShown))}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, &QuestionError{"to",
			fmt.Sprintf("the port %q is not a number from 1 to 65535", clip.Text(text, maxShown))}
	}
	return host, uint16(port), nil
}

// parseIP parses an address as a kernel dials it: IPv4-mapped IPv6 becomes IPv4.
func parseIP(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	return a.Unmap().WithZone(""), err
}

// hostFault says why a string is not a host name; "" if it is one.
func hostFault(s string) string {
	if len(s) > maxHost {
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(s), maxHost)
	}
	if strings.Trim(s, "-_.0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return "is not a host name: letters, digits, hyphens, underscores, and dots are allowed; " +
			"use the xn-- form for other scripts"
	}
	if s == "" || strings.HasPrefix(s, ".") || strings.Contains(s, "..") {
		return "is not a host name: it has an empty label"
	}
	return ""
}

// resolve finds the address of a name.
func (p *flowProxy) resolve(v *mesh.View, d *dialled, port uint16) {
	var known []*mesh.Outbound
	isNamed := namedBy(v, d.host)
	for i := range p.outbounds {
		if o := &p.outbounds[i]; isNamed(o) {
			known = append(known, o)
		}
	}
	if len(known) == 0 {
		d.dst, d.any = netip.AddrPortFrom(netip.MustParseAddr(anyAddress), port), true
		d.note = fmt.Sprintf("the address of %s is unknown: %s represents an address that no rule matches; "+
			"set ip to the address that the client dials", d.host, anyAddress)
		return
	}
	o := known[0]
	if i := slices.IndexFunc(known, func(k *mesh.Outbound) bool { return k.Port == uint32(port) }); i >= 0 {
		o = known[i]
	}
	d.dst = netip.AddrPortFrom(o.Address, uint16(o.Port))
	switch {
	case o.Port == uint32(port):
		d.note = fmt.Sprintf("%s has the address %s", d.host, o.Address)
	case v.Hostname(d.host) != nil || strings.HasSuffix(d.host, ".mesh"):
		// A name of the mesh is resolved by DNS, which does not change the port.
		d.dst = netip.AddrPortFrom(o.Address, port)
		d.note = fmt.Sprintf("%s has the address %s, on which the service uses port %d", d.host, o.Address, o.Port)
	default:
		d.note = fmt.Sprintf("the workload reaches %s at %s", d.host, d.dst)
	}
}

// namedBy returns a filter for the outbounds with a hostname: those of the service that owns it in
// the mesh, or else those that workloads call by it.
func namedBy(v *mesh.View, host string) func(*mesh.Outbound) bool {
	h, apart := v.Hostname(host), v.HostAddresses()
	if h == nil {
		name := strings.TrimSuffix(host, ".mesh")
		return func(o *mesh.Outbound) bool { return !apart[o.Address] && slices.Contains(namesOf(o), name) }
	}
	return func(o *mesh.Outbound) bool {
		s := o.Service
		switch {
		case h.Origin == mesh.OriginVirtual && o.Address.IsValid():
			return slices.Contains(h.Addrs, o.Address)
		case apart[o.Address]:
			return false
		}
		if h.Kind == mesh.KindTag {
			return s.ID.Kind == h.Kind && s.Tag == h.Tag
		}
		return s.ID.Kind == h.Kind && s.Resource == h.Resource
	}
}

// namesOf lists the names of an outbound.
func namesOf(o *mesh.Outbound) []string {
	s := o.Service
	out := []string{s.ID.Name}
	for _, n := range []string{s.Tag, s.Resource.Name, s.FullName} {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if s.Tag != "" {
		// Tags derived from Kubernetes names have underscores where host names have dots.
		out = append(out, strings.ReplaceAll(s.Tag, "_", "."))
	}
	if s.Outside != nil && s.ID.Kind == mesh.KindTag {
		for i := range s.Outside.List {
			out = append(out, strings.ToLower(s.Outside.List[i].Address))
		}
	}
	return out
}

// connect returns the connection of the workload as it arrives at its proxy.
func (p *flowProxy) connect(dst netip.AddrPort) *match.Conn {
	c := &match.Conn{Dst: dst, Src: netip.AddrPortFrom(p.addressFor(dst.Addr()), clientPort)}
	if p.redirected() {
		// Kernel redirection gives connections of the host itself a loopback address.
		c.Entry = netip.AddrPortFrom(loopback(dst.Addr()), uint16(p.spec.Networking.TransparentProxying.RedirectPortOutbound))
	}
	return c
}

// addressFor returns the source address of a workload's connections.
func (p *flowProxy) addressFor(dst netip.Addr) netip.Addr {
	if dst.IsLoopback() {
		return dst
	}
	if a, err := parseIP(p.spec.Networking.Address); err == nil && a.Is4() == dst.Is4() {
		return a
	}
	return loopback(dst)
}

func loopback(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// redirected reports whether connections of the workload to any address are redirected to its
// proxy.
func (p *flowProxy) redirected() bool {
	tp := p.spec.Networking.TransparentProxying
	return tp != nil && tp.RedirectPortOutbound != 0
}

// unreachable returns the service of the mesh that is dialed by name or address but that the
// dataplane does not reach, and the reason; nil if there is none. If the address of the name is
// unknown, it becomes that of the service.
func (p *flowProxy) unreachable(t *Traffic, d *dialled) (*mesh.Service, policy.ReachVerdict) {
	none := policy.ReachVerdict{}
	if t.mesh.Policies == nil {
		return nil, none
	}
	var reach *policy.Reach
	var found *mesh.Service
	var why policy.ReachVerdict
	isNamed := namedBy(t.mesh.View, d.host)
	for _, s := range t.mesh.View.Services() {
		if !s.VIP.IsValid() || d.any && (!isNamed(&mesh.Outbound{Service: s}) || isOutside(s, d.host)) ||
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

// isOutside reports whether a name is the host of a service outside the mesh, which is resolved
// normally if the mesh does not resolve it.
func isOutside(s *mesh.Service, host string) bool {
	return s.Outside != nil &&
		slices.ContainsFunc(s.Outside.List, func(e mesh.Endpoint) bool { return strings.ToLower(e.Address) == host })
}

// explainUnusedPort explains a connection to an unused port of a virtual address.
func (t *Traffic) explainUnusedPort(flow *Flow, d *dialled) {
	var name string
	var ports []string
	for _, s := range t.mesh.View.Services() {
		if a := d.dst.Addr(); s.VIP != a && s.VIP6 != a {
			continue
		}
		at := []uint32{s.Port}
		for _, a := range s.Aliases {
			if !a.Addr().IsValid() {
				at = append(at, uint32(a.Port()))
			}
		}
		if slices.Contains(at, uint32(d.dst.Port())) {
			return
		}
		name = s.ID.Name
		for _, p := range at {
			ports = append(ports, strconv.FormatUint(uint64(p), 10))
		}
	}
	if host, at := t.mesh.View.HostAt(d.dst.Addr()); host != "" {
		if slices.Contains(at, uint32(d.dst.Port())) {
			return
		}
		name = host
		for _, p := range at {
			ports = append(ports, strconv.FormatUint(uint64(p), 10))
		}
	}
	if name == "" || !isPassthrough(flow.Listener) || flow.Verdict != VerdictAllowed {
		return
	}
	flow.noAnswer()
	flow.Reason = fmt.Sprintf("port %d of the virtual address of %s is not in use; available ports: %s",
		d.dst.Port(), name, strings.Join(ports, ", "))
}

// noAnswer sets the outcome of a connection to a virtual address from passthrough: nothing outside
// the mesh has that address.
func (f *Flow) noAnswer() {
	switch {
	case !isPassthrough(f.Listener) || f.Verdict != VerdictAllowed:
	case f.Route != "": // the proxy responds to a request
		f.Verdict, f.Flag, f.Status = VerdictDenied, "UF", 503
	default:
		f.Verdict, f.Flag = VerdictClosed, "UF"
	}
}

// explainUnreachable explains that the dataplane does not reach the dialed service. Nothing outside
// the mesh has its address, so a connection through passthrough gets no response.
func (t *Traffic) explainUnreachable(p *flowProxy, flow *Flow, s *mesh.Service, v policy.ReachVerdict) {
	flow.noAnswer()
	if flow.Verdict == VerdictAllowed {
		flow.Verdict = VerdictUnreachable
	}
	about := &Proxy{index: t.mesh.Policies, dataplane: p.dataplane, spec: p.spec}
	why := WhyReach(about.index, about.spec, s, v)
	flow.Reason = fmt.Sprintf("the dataplane does not reach %s: %s", destinationOf(s), why.Reason)
	flow.missed, flow.closed = s, v.Cause != mesh.CauseNoPermission
	switch {
	case v.Cause == mesh.CauseNoPermission:
		if why.Policy != nil {
			flow.Policies = unique(append(flow.Policies, policyOf(v.By.Policy.Key, why.Policy.Field)))
		}
	case v.Cause != mesh.CauseNotListed:
	case s.ID.Kind == mesh.KindTag:
		flow.Reason += fmt.Sprintf("; to reach it, add %s to %s", inline(s.Tag), why.Field)
	default:
		ns := s.Labels[resource.LabelNamespace]
		ref := policy.BackendRef{Kind: s.ID.Kind, Name: strings.TrimSuffix(s.Resource.Name, "."+ns), Namespace: ns,
			Port: s.Port}
		flow.Reason += fmt.Sprintf("; to reach it, add %s to %s", inline(ref), why.Field)
	}
}
