package mesh

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/virtualip"
)

// maxVirtualHosts limits the number of hosts that the VirtualOutbounds of a mesh yield.
const maxVirtualHosts = 20_000

// virtualHost is a hostname from VirtualOutbounds, or the host of ExternalServices, with its
// virtual addresses and outbounds.
type virtualHost struct {
	name     string
	addr     virtualip.Addresses
	ports    []virtualPort // sorted by number
	external bool          // from ExternalServices
}

// virtualPort is one outbound at the addresses of a virtual host.
type virtualPort struct {
	number uint32
	tags   map[string]string // with kuma.io/service
	by     resource.Key
}

// hostKey returns the owner of a virtual host's addresses. No service has such a name.
func hostKey(name string) virtualip.Owner {
	return virtualip.Owner{Kind: KindTag, Name: "host " + name}
}

// candidate is a port of a host that one VirtualOutbound yields for some tags.
type candidate struct {
	host string
	virtualPort
	exact int // number of tags in the selector
	text  string
}

// addVirtualHosts computes the hosts of all VirtualOutbounds. If two of them define the same port
// of a name with different tags, the selector with more tags wins, and then the first name. (Kuma
// compares their age, on which nodes may disagree.)
func (v *View) addVirtualHosts(list, external []*resource.Resource) {
	if len(list) == 0 {
		return
	}
	var all []candidate
	seen := map[string]bool{} // by all inputs of the decision
	var decides []byte
	failed := map[resource.Key][]string{}
	fill := func(r *resource.Resource, o *resource.VirtualOutbound, tags map[string]string) {
		exact, ok := o.Strength(tags)
		if !ok {
			return
		}
		decides = binary.AppendUvarint(decides[:0], uint64(exact)) // #nosec G115 -- a count
		for i := range o.Conf.Parameters {
			value, has := tags[o.Conf.Parameters[i].Tag()]
			if decides = append(decides, 0); has {
				decides = append(append(decides, '='), value...)
			}
		}
		if seen[string(decides)] {
			return
		}
		seen[string(decides)] = true
		host, port, chosen, lacks, reason := o.Filled(tags)
		if reason != "" {
			failed[r.Key] = append(failed[r.Key],
				fmt.Sprintf("%s %q: %s", resource.TagService, tags[resource.TagService], reason))
		}
		if lacks+reason != "" || chosen[resource.TagService] == "" {
			return
		}
		all = append(all, candidate{host: host, virtualPort: virtualPort{number: port, tags: chosen, by: r.Key}, exact: exact,
			text: tagText(chosen)})
	}
	for r, o := range resource.Specs[*resource.VirtualOutbound](list) {
		clear(seen)
		for _, in := range v.inbounds.all {
			fill(r, o, v.InboundTags(in.spec.Tags))
		}
		for _, service := range sortedKeys(v.zones.tags) {
			for i := range v.zones.tags[service] {
				fill(r, o, v.zones.tags[service][i].Tags)
			}
		}
		for _, es := range resource.Specs[*resource.ExternalService](external) {
			fill(r, o, map[string]string{resource.TagService: es.Tags[resource.TagService]})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.number, b.number), cmp.Compare(b.exact, a.exact),
			a.by.Compare(b.by), strings.Compare(a.text, b.text))
	})
	v.hosts = hostsOf(v, all)
	for _, k := range slices.SortedFunc(maps.Keys(failed), resource.Key.Compare) {
		v.warnf(k, "no name for %s", joinSome(failed[k], "; "))
	}
}

// hostsOf merges sorted candidates. It warns about each VirtualOutbound that lost a port.
func hostsOf(v *View, all []candidate) (out []virtualHost) {
	lost := map[resource.Key][]string{}
	n := 0
	for i := range all {
		c := &all[i]
		if len(out) == 0 || out[len(out)-1].name != c.host {
			out = append(out, virtualHost{name: c.host})
		}
		h := &out[len(out)-1]
		if last := len(h.ports) - 1; last >= 0 && h.ports[last].number == c.number {
			if have := &h.ports[last]; !maps.Equal(have.tags, c.tags) {
				lost[c.by] = append(lost[c.by],
					fmt.Sprintf("%s:%d leads to %s by %s, and not to %s", c.host, c.number, tagText(have.tags), have.by.Name, c.text))
			}
			continue
		}
		if n++; n > maxVirtualHosts {
			v.warnf(c.by, "the VirtualOutbounds of the mesh yield more than %d names and ports: the others are dropped; "+
				"narrow the selectors", maxVirtualHosts)
			if len(h.ports) == 0 {
				out = out[:len(out)-1]
			}
			break
		}
		h.ports = append(h.ports, c.virtualPort)
	}
	for _, k := range slices.SortedFunc(maps.Keys(lost), resource.Key.Compare) {
		v.warnf(k, "%s: a port of a name leads to one destination; add parameters to the templates that distinguish them",
			joinSome(lost[k], "; "))
	}
	return out
}

// joinSome joins the first few strings.
func joinSome(list []string, sep string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, sep)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(list[:most], sep), sep, len(list)-most)
}

// tagText formats tags in a fixed order.
func tagText(tags map[string]string) string {
	var b strings.Builder
	for i, k := range sortedKeys(tags) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(k + "=" + tags[k])
	}
	return b.String()
}

// virtualHosts appends the outbounds at the addresses of virtual hosts, for the services that the
// dataplane reaches.
func (r *Reach) virtualHosts(out []Outbound, admit func(*Service) bool) []Outbound {
	for i := range r.view.hosts {
		h := &r.view.hosts[i]
		for _, p := range h.ports {
			s := r.view.Service(ServiceID{Kind: KindTag, Name: p.tags[resource.TagService]})
			if s == nil || !h.addr[virtualip.V4].IsValid() {
				continue
			}
			verdict := r.Of(s)
			if !verdict.Reachable || verdict.Cause == CauseOpen && admit != nil && !admit(s) {
				continue
			}
			ob := Outbound{Service: s, Tags: p.tags, Subset: subset(p.tags)}
			out = r.at(out, ob, h.addr[virtualip.V4], p.number)
			if r.view.IPv6 && h.addr[virtualip.V6].IsValid() {
				out = r.at(out, ob, h.addr[virtualip.V6], p.number)
			}
		}
	}
	return out
}

// named returns the host as an owner of a name, without labels.
func (h *virtualHost) named(ipv6 bool) named {
	n := named{Owner: hostKey(h.name), vips: [2]netip.Addr{h.addr[virtualip.V4]}, host: h}
	if ipv6 {
		n.vips[1] = h.addr[virtualip.V6]
	}
	return n
}

// equal reports whether two hosts give the same DNS answers.
func (h *virtualHost) equal(o *virtualHost) bool {
	return h.name == o.name && h.addr == o.addr && slices.EqualFunc(h.ports, o.ports, func(a, b virtualPort) bool {
		return a.number == b.number && a.by == b.by && maps.Equal(a.tags, b.tags)
	})
}

// sameHosts reports whether the previous view had the same virtual hosts.
func (v *View) sameHosts() bool {
	return slices.EqualFunc(v.hosts, v.prev.hosts, func(a, b virtualHost) bool { return a.equal(&b) })
}

// leadsTo reports whether all ports of the host lead to a tag service.
func (h *virtualHost) leadsTo(s *named) bool {
	return s.Kind == KindTag && s.host == nil &&
		!slices.ContainsFunc(h.ports, func(p virtualPort) bool { return p.tags[resource.TagService] != s.Name })
}

// HostAddresses returns the virtual addresses of names from VirtualOutbounds. They belong to no
// service. The result may be nil.
func (v *View) HostAddresses() map[netip.Addr]bool {
	if len(v.hosts) == 0 {
		return nil
	}
	out := make(map[netip.Addr]bool, len(v.hosts)*2)
	for i := range v.hosts {
		for _, a := range v.hosts[i].addr {
			if a.IsValid() {
				out[a] = true
			}
		}
	}
	return out
}

// HostAt returns the name from VirtualOutbounds with a virtual address, and the ports there; "" if
// there is none.
func (v *View) HostAt(a netip.Addr) (name string, ports []uint32) {
	for i := range v.hosts {
		if h := &v.hosts[i]; h.addr[virtualip.V4] == a || h.addr[virtualip.V6] == a {
			for _, p := range h.ports {
				ports = append(ports, p.number)
			}
			return h.name, ports
		}
	}
	return "", nil
}
