package mesh

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// inbound is one inbound of the mesh that may serve traffic.
type inbound struct {
	dp      *resource.Resource
	spec    *resource.Inbound
	index   int
	service string
	proto   Protocol
	ready   bool
	behind  bool // an ingress of its zone
	ep      Endpoint
}

// inboundIndex holds all inbounds by the value of their kuma.io/service tag, in the order of dataplane names.
type inboundIndex struct {
	services []string // sorted
	by       map[string][]*inbound
	all      []*inbound
}

func indexInbounds(v *View) *inboundIndex {
	n := 0
	for _, d := range v.dataplanes {
		if s, ok := d.Spec.(*resource.Dataplane); ok {
			n += len(s.Networking.Inbound)
		}
	}
	all := make([]inbound, 0, n)
	ix := &inboundIndex{by: make(map[string][]*inbound, n/2), all: make([]*inbound, 0, n)}
	for _, d := range v.dataplanes {
		spec, ok := d.Spec.(*resource.Dataplane)
		if !ok {
			continue
		}
		for i := range spec.Networking.Inbound {
			in := &spec.Networking.Inbound[i]
			service := in.Tags[resource.TagService]
			if service == "" || in.State == resource.InboundIgnored {
				continue
			}
			addr := cmp.Or(spec.Networking.AdvertisedAddress, in.Address, spec.Networking.Address)
			if _, err := netip.ParseAddr(addr); err != nil {
				v.warnf(d.Key, "networking.inbound[%d]: the address %q is not an IP address, and endpoints must be: "+
					"other proxies cannot reach this inbound; set networking.address to an IP", i, addr)
				continue
			}
			zone := cmp.Or(in.Tags[resource.TagZone], v.Zone)
			all = append(all, inbound{
				dp: d, spec: in, index: i, service: service,
				proto: ParseProtocol(in.Tags[resource.TagProtocol]), ready: Ready(in), behind: v.behindIngress(zone),
				ep: Endpoint{Address: addr, Port: in.Port, Zone: zone, Tags: in.Tags, Resource: d, Index: i},
			})
			ix.all = append(ix.all, &all[len(all)-1])
			ix.by[service] = append(ix.by[service], &all[len(all)-1])
		}
	}
	ix.services = sortedKeys(ix.by)
	return ix
}

// Ready reports whether an inbound takes traffic.
func Ready(in *resource.Inbound) bool {
	return (in.State == "" || in.State == resource.InboundReady) && (in.Health == nil || in.Health.Ready)
}

// InboundTags are the tags of an inbound with the zone of the node where it names none.
func (v *View) InboundTags(tags map[string]string) map[string]string {
	out := maps.Clone(tags)
	if out == nil {
		out = map[string]string{}
	}
	if out[resource.TagZone] == "" {
		out[resource.TagZone] = v.Zone
	}
	return out
}

// ProxyTags joins the tags of all inbounds of a dataplane, or those of its gateway: each key with its sorted values.
func (v *View) ProxyTags(dp *resource.Dataplane) map[string][]string {
	out := map[string][]string{}
	add := func(tags map[string]string) {
		for k, val := range v.InboundTags(tags) {
			if !slices.Contains(out[k], val) {
				out[k] = append(out[k], val)
			}
		}
	}
	if gw := dp.Networking.Gateway; gw != nil {
		add(gw.Tags)
	}
	for i := range dp.Networking.Inbound {
		if in := &dp.Networking.Inbound[i]; in.State != resource.InboundIgnored {
			add(in.Tags)
		}
	}
	for _, vals := range out {
		slices.Sort(vals)
	}
	return out
}
