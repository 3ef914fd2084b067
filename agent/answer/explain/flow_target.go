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
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

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
	any  bool           // the address is unknown; dst has an unused one
	is   names.Classification
}

// dial reads a target and resolves a name like the resolver of the dataplane's node.
func (t *Traffic) dial(p *flowProxy, target *Target) (dialled, error) {
	host, port, err := splitTarget(target.To)
	if err != nil {
		return dialled{}, err
	}
	d := dialled{host: strings.TrimSuffix(strings.ToLower(host), ".")}
	addr, err := parseIP(host)
	if d.name = err != nil; !d.name {
		d.host = addr.String()
		if target.IP != "" {
			return dialled{}, &QuestionError{"ip", fmt.Sprintf(
				"%q cannot be set because to contains the address %s; use a name in to or omit ip", target.IP, host)}
		}
		d.dst = netip.AddrPortFrom(addr, port)
		return d, nil
	}
	if reason := hostFault(d.host); reason != "" {
		return dialled{}, &QuestionError{"to", fmt.Sprintf("the host %q %s", clip.Text(host, maxShown), reason)}
	}
	if target.IP != "" {
		if addr, err = parseIP(target.IP); err != nil {
			return dialled{}, &QuestionError{"ip", fmt.Sprintf("%q is not an IP address", clip.Text(target.IP, maxShown))}
		}
		d.dst, d.note = netip.AddrPortFrom(addr, port), "the client dials "+target.IP
		return d, nil
	}
	return d, t.resolve(p, &d, port)
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
	return out
}

// connect returns the connection of the workload as it arrives at its proxy.
// virtual is true if the dialed address is in the ranges of virtual addresses.
func (p *flowProxy) connect(dst netip.AddrPort, virtual bool) *match.Conn {
	c := &match.Conn{Dst: dst, Src: netip.AddrPortFrom(p.addressFor(dst.Addr()), clientPort)}
	if p.redirected() {
		// Kernel redirection gives connections of the host itself a loopback address.
		port := p.spec.Networking.TransparentProxying.RedirectPortOutbound
		if own, err := mesh.VirtualPort(p.dataplane, p.spec); err == nil && own != 0 && virtual {
			port = own
		}
		c.Entry = netip.AddrPortFrom(loopback(dst.Addr()), uint16(port))
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
	if flow.Verdict == VerdictAllowed || flow.Listener == "" {
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
