package edges

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// addresses finds services by the address of an outbound.
type addresses map[netip.AddrPort]int32

// outboundPrefix begins the names of the listeners of outbounds, before their addresses.
const outboundPrefix = "outbound:"

// newAddresses indexes the virtual addresses of the view.
func newAddresses(v *mesh.View) addresses {
	out := addresses{}
	for i, s := range v.Services() {
		for _, a := range [...]netip.Addr{s.VIP, s.VIP6} {
			if !a.IsValid() {
				continue
			}
			out[netip.AddrPortFrom(a, uint16(s.Port))] = int32(i)
			for _, alias := range s.Aliases {
				if !alias.Addr().IsValid() {
					out[netip.AddrPortFrom(a, alias.Port())] = int32(i)
				}
			}
		}
		for _, alias := range s.Aliases {
			if alias.Addr().IsValid() {
				out[alias] = int32(i)
			}
		}
	}
	return out
}

// sent is the traffic of an edge.
type sent struct{ connections, requests, failed, refused, unconnected uint64 }

// Traffic holds traffic by client and destination.
type Traffic struct {
	sent    map[[2]int]sent // by node
	counted map[int]int     // proxies with counters, by client
}

// Traffic assigns the counters of Envoys to edges. of holds them by dataplane. Listeners and
// clusters that lead to no service do not count.
func (g *Graph) Traffic(of map[string]api.ProxyCounts, visible Visible) *Traffic {
	out := &Traffic{sent: map[[2]int]sent{}, counted: map[int]int{}}
	if len(of) == 0 {
		return out
	}
	g.index()
	for from, n := range g.nodes {
		for _, i := range g.members(n, visible) {
			c := &g.callers[i]
			counters, ok := of[c.dataplane.Name]
			if !ok {
				continue
			}
			out.counted[from]++
			own := g.listed(c)
			var all addresses // of every outbound, if the others do not suffice
			for name, x := range counters.Outbounds {
				text, ok := strings.CutPrefix(name, outboundPrefix)
				if !ok {
					continue
				}
				at, err := netip.ParseAddrPort(text)
				if err != nil {
					continue // passthrough
				}
				s, ok := own[at]
				if !ok {
					if s, ok = g.byAddr[at]; !ok {
						if all == nil {
							all = g.outbounds(c)
						}
						s, ok = all[at]
					}
				}
				if ok {
					k := [2]int{from, g.nodeOf[s]}
					sum := out.sent[k]
					sum.connections += x.Connections
					sum.requests += x.Requests
					sum.failed += x.Failed
					out.sent[k] = sum
				}
			}
			for name, x := range counters.Clusters {
				if s, ok := g.byCluster[name]; ok {
					k := [2]int{from, g.nodeOf[s]}
					sum := out.sent[k]
					sum.refused += x.Refused
					sum.unconnected += x.Unconnected
					out.sent[k] = sum
				}
			}
		}
	}
	return out
}

// listed returns the services of the outbounds that a dataplane lists, which take precedence over
// virtual addresses.
func (g *Graph) listed(c *caller) addresses {
	out := addresses{}
	g.v.EachOutbound(c.dataplane, func(i int, s *mesh.Service) {
		o := &c.spec.Networking.Outbound[i]
		a, err := netip.ParseAddr(cmp.Or(o.Address, "127.0.0.1"))
		if err == nil && s.Index >= 0 {
			out[netip.AddrPortFrom(a, uint16(o.Port))] = int32(s.Index)
		}
	})
	return out
}

// outbounds returns the services of all outbounds, such as those of virtual hosts.
func (g *Graph) outbounds(c *caller) addresses {
	out := addresses{}
	if g.m.Policies == nil {
		return out
	}
	list, _ := g.m.Policies.Outbounds(c.dataplane)
	for i := range list {
		if o := &list[i]; o.Service.Index >= 0 {
			out[netip.AddrPortFrom(o.Address, uint16(o.Port))] = int32(o.Service.Index)
		}
	}
	return out
}

// index prepares what counters are assigned by.
func (g *Graph) index() {
	if g.byAddr != nil {
		return
	}
	g.byAddr, g.byCluster = newAddresses(g.v), map[string]int32{}
	g.nodeOf = make([]int, len(g.v.Services()))
	for i, s := range g.v.Services() {
		g.byCluster[strings.ReplaceAll(s.ID.Name, ":", "_")] = int32(i) // as in the names of statistics
	}
	for i, n := range g.nodes {
		for _, s := range n.dests {
			g.nodeOf[s] = i
		}
	}
}

// ServiceOfCluster returns the service of a cluster, or "" if there is none.
func (g *Graph) ServiceOfCluster(name string) string {
	g.index()
	if s, ok := g.byCluster[name]; ok {
		return g.nodes[g.nodeOf[s]].name
	}
	return ""
}

// ServiceOf returns the first service of a dataplane by name, or "" if the mesh has no such
// dataplane. With a port, it is the service of the inbound with that port, if there is one.
func (g *Graph) ServiceOf(dataplane, port string) string {
	r := g.v.Dataplane(dataplane)
	if r == nil {
		return ""
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return ""
	}
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		if name := in.Tags[resource.TagService]; name != "" && strconv.FormatUint(uint64(in.Port), 10) == port {
			return name
		}
	}
	for _, name := range g.v.ProxyTags(dp)[resource.TagService] {
		return name
	}
	return kindDataplane + "/" + dataplane
}
