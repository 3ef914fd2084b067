package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/resource"
)

// Outbound is one address a proxy listens at for its workload, and the service behind it.
type Outbound struct {
	Address netip.Addr
	Port    uint32
	Service *Service          // never nil; a tag service that nothing offers has no endpoints
	Tags    map[string]string // tags of the outbound as written; nil for service resources
	Subset  map[string]string // tags beside kuma.io/service that endpoints must have; nil for all
}

// Outbounds returns what a dataplane may reach, sorted by address and port: its virtual addresses when it has a
// transparent proxy, and the outbounds it lists. Of two for one address the listed one wins.
func (v *View) Outbounds(r *resource.Resource) ([]Outbound, []Warning) { return v.OutboundsIf(r, nil) }

// OutboundsIf is [View.Outbounds] without the virtual addresses of services that keep says no to. It is asked about
// those alone that no list of the dataplane decides about; nil keeps all.
func (v *View) OutboundsIf(r *resource.Resource, keep func(*Service) bool) ([]Outbound, []Warning) {
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil, nil
	}
	var warnings []Warning
	warn := func(format string, args ...any) {
		warnings = append(warnings, Warning{Resource: r.Key, Reason: fmt.Sprintf(format, args...)})
	}
	out := make([]Outbound, 0, len(dp.Networking.Outbound))
	for i := range dp.Networking.Outbound {
		o := &dp.Networking.Outbound[i]
		addr, err := netip.ParseAddr(cmp.Or(o.Address, "127.0.0.1"))
		if err != nil {
			warn("networking.outbound[%d].address: %q is not an IP address: the outbound is left out", i, o.Address)
			continue
		}
		ob := Outbound{Address: addr, Port: o.Port, Tags: o.Tags}
		if o.BackendRef != nil {
			found := v.backends(r, o.BackendRef)
			if say := backendWarning(o.BackendRef, found); say != "" {
				warn("networking.outbound[%d].backendRef: %s", i, say)
			}
			if len(found) == 0 {
				continue
			}
			ob.Service = found[0]
		} else {
			ob.Service = v.tagService(o.Tags[resource.TagService])
			ob.Subset = subset(o.Tags)
		}
		out = append(out, ob)
	}
	for _, n := range dp.Notes {
		warn("%s", n)
	}
	if reach := v.Reach(r); reach.tp != nil {
		out = reach.virtual(out, keep)
		reach.hints(warn)
	}
	slices.SortStableFunc(out, func(a, b Outbound) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	})
	out = slices.CompactFunc(out, func(a, b Outbound) bool { return a.Address == b.Address && a.Port == b.Port })
	return slices.DeleteFunc(out, func(o Outbound) bool {
		_, no := v.Unserved(o.Service)
		return no
	}), warnings
}

// subset returns the tags beside the service, nil when there are none.
func subset(tags map[string]string) map[string]string {
	if len(tags) <= 1 {
		return nil
	}
	out := make(map[string]string, len(tags)-1)
	for k, val := range tags {
		if k != resource.TagService {
			out[k] = val
		}
	}
	return out
}

// noEndpoints is shared by all services that nothing offers.
var noEndpoints = &EndpointSet{}

// tagService returns the service of a tag value; one that nothing offers yet is an empty TCP service.
func (v *View) tagService(name string) *Service {
	id := ServiceID{Kind: KindTag, Name: name}
	if s := v.Service(id); s != nil {
		return s
	}
	return &Service{ID: id, Tag: name, Port: vipPort, Protocol: ProtocolTCP, Endpoints: noEndpoints, Index: -1}
}

// sidecars holds the dataplanes that their proxies say more about, by name.
type sidecars map[string]sidecar

type sidecar struct {
	from *resource.Resource
	by   *resource.Reach
	to   *resource.Resource
}

// restrict returns the dataplanes with what their proxies say that they reach, the list itself where none says
// anything. What it made for prev is used again.
func (v *View) restrict(list []*resource.Resource, said map[string]*resource.Reach, prev *View) []*resource.Resource {
	if len(said) == 0 {
		return list
	}
	v.sidecars = make(sidecars, len(said))
	out := slices.Clone(list)
	for name, by := range said {
		i, ok := slices.BinarySearchFunc(out, name, func(r *resource.Resource, name string) int { return strings.Compare(r.Name, name) })
		if !ok {
			continue
		}
		s := sidecar{from: out[i], by: by}
		if prev != nil && prev.sidecars[name].from == s.from && prev.sidecars[name].by == by {
			s = prev.sidecars[name]
		} else {
			s.to = by.Restrict(s.from)
		}
		v.sidecars[name], out[i] = s, s.to
	}
	return out
}

// Said returns what the proxy of a dataplane said that it reaches when the view was made; nil for nothing.
func (v *View) Said(dataplane string) *resource.Reach { return v.sidecars[dataplane].by }
