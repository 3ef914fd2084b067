package mesh

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/strict"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Outbound is one address on which a proxy listens for its workload, and the service behind it.
type Outbound struct {
	Address netip.Addr
	Port    uint32
	Service *Service          // never nil; a tag service without instances has no endpoints
	Tags    map[string]string // tags of the outbound as given; nil for service resources
	Subset  map[string]string // tags besides kuma.io/service that endpoints must have; nil for all endpoints
}

// Outbounds returns the outbounds of a dataplane, sorted by address and port: the virtual addresses
// if it has a transparent proxy, and the outbounds that it lists. A listed outbound takes
// precedence at its address.
func (v *View) Outbounds(r *resource.Resource) ([]Outbound, []Warning) { return v.OutboundsIf(r, nil) }

// OutboundsIf is like [View.Outbounds] but drops the virtual addresses of services for which admit
// returns false. It calls admit only for services that no list of the dataplane decides. A nil
// admit drops none.
func (v *View) OutboundsIf(r *resource.Resource, admit func(*Service) bool) ([]Outbound, []Warning) {
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
			warn("networking.outbound[%d].address: %q is not an IP address: the outbound is ignored", i, o.Address)
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
	if dp.Probes != nil {
		warn("probes have no effect, because the proxy forwards no probes; probe the workload directly, " +
			"or use a TCP probe")
	}
	if dp.Metrics != nil {
		warn("metrics has no effect: a MeshMetric configures the metrics of proxies; apply one that selects this dataplane")
	}
	if e := dp.Envoy; e != nil && e.XDSTransportProtocolVariant != nil && *e.XDSTransportProtocolVariant != "DEFAULT" {
		warn("envoy.xdsTransportProtocolVariant has no effect: the bootstrap of the Envoy selects the variant of xDS")
	}
	for _, n := range dp.Notes {
		warn("%s", n)
	}
	if reach := v.Reach(r); reach.tp != nil {
		out = reach.virtualHosts(reach.virtual(out, admit), admit)
		reach.hints(warn)
	}
	out = byAddress(out)
	out = slices.CompactFunc(out, func(a, b Outbound) bool { return a.Address == b.Address && a.Port == b.Port })
	return slices.DeleteFunc(out, func(o Outbound) bool {
		_, no := v.Unserved(o.Service)
		return no
	}), warnings
}

// byAddress sorts outbounds by address and port. The sort is stable.
func byAddress(list []Outbound) []Outbound {
	if slices.IsSortedFunc(list, func(a, b Outbound) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
	}) {
		return list
	}
	order := make([]int32, len(list))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &list[i], &list[j]
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(i, j))
	})
	out := make([]Outbound, len(list))
	for to, from := range order {
		out[to] = list[from]
	}
	return out
}

// subset returns the tags besides the service, or nil if there are none.
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

// noEndpoints is shared by all services without endpoints.
var noEndpoints = &EndpointSet{}

// tagService returns the service of a tag value. An unused value yields a TCP service without
// endpoints.
func (v *View) tagService(name string) *Service {
	id := ServiceID{Kind: KindTag, Name: name}
	if s := v.Service(id); s != nil {
		return s
	}
	return &Service{ID: id, Tag: name, Port: vipPort, Protocol: ProtocolTCP, Endpoints: noEndpoints, Index: -1}
}

// sidecars holds dataplanes whose Envoy metadata adds reachability, by name.
type sidecars map[string]sidecar

type sidecar struct {
	from *resource.Resource
	by   *resource.Reach
	to   *resource.Resource
}

// restrict adds the reachability that proxies announce to their dataplanes. It returns the list
// itself if none does, and reuses the results of prev.
func (v *View) restrict(list []*resource.Resource, said map[string]*resource.Reach, prev *View) []*resource.Resource {
	if len(said) == 0 {
		return list
	}
	v.sidecars = make(sidecars, len(said))
	out := slices.Clone(list)
	for name, by := range said {
		i, ok := slices.BinarySearchFunc(out, name, func(r *resource.Resource, name string) int {
			return strings.Compare(r.Name, name)
		})
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

// Limits of the hints about reachability entries that match nothing.
const (
	maxHints      = 16  // entries with a separate warning
	maxNear       = 4   // entries for which a similar name is searched
	maxCandidates = 512 // names that are compared with one entry
	maxNamedPorts = 8
)

// hints warns about entries of the lists that select nothing. If there are many, it warns about the
// first ones.
func (r *Reach) hints(warn func(format string, args ...any)) {
	shown, more, near := 0, 0, 0
	tell := func(entry func(near bool) string) {
		if shown == maxHints {
			more++
			return
		}
		shown++
		near++
		warn("%s", entry(near <= maxNear))
	}
	if r.mode == resource.MeshServicesExclusive && r.services != nil && r.tp.ReachableBackends == nil {
		warn("networking.transparentProxying.reachableServices without reachableBackends " +
			"makes nothing reachable: the mesh's mode, Exclusive, excludes tag services; " +
			"list the needed MeshServices in reachableBackends.refs")
		return
	}
	for i, name := range r.tp.ReachableServices {
		if r.view.Service(ServiceID{Kind: KindTag, Name: name}) == nil {
			tell(func(near bool) string {
				return fmt.Sprintf("networking.transparentProxying.reachableServices[%d]: there is no service %q", i, name) +
					r.near(near, KindTag, name, "")
			})
		}
	}
	if r.tp.ReachableBackends != nil {
		for i := range r.tp.ReachableBackends.Refs {
			ref := &r.tp.ReachableBackends.Refs[i]
			if len(r.view.backends(r.dataplane, outboundRef(ref))) == 0 {
				tell(func(near bool) string {
					return fmt.Sprintf("networking.transparentProxying.reachableBackends.refs[%d]: %s", i, r.why(ref, near))
				})
			}
		}
	}
	if more > 0 {
		warn("networking.transparentProxying: %d more entries match nothing", more)
	}
}

// outboundRef converts a reference of the list to the form of outbounds.
func outboundRef(ref *resource.ReachableBackendRef) *resource.OutboundRef {
	out := &resource.OutboundRef{Kind: ref.Kind, Name: ref.Name, Namespace: ref.Namespace, Labels: ref.Labels}
	if ref.Port != nil {
		out.Port = *ref.Port
	}
	return out
}

// why describes what a reference names that does not exist.
func (r *Reach) why(ref *resource.ReachableBackendRef, near bool) string {
	named := outboundRef(ref)
	named.Port = 0
	if len(ref.Labels) > 0 {
		return "there is no " + describe(named)
	}
	for _, name := range Qualified(r.dataplane, ref.Name, ref.Namespace) {
		list := r.view.ports[resource.Key{Kind: ref.Kind, Mesh: r.view.Name, Name: name}]
		if len(list) == 0 {
			continue
		}
		var ports []string
		for _, s := range list[:min(len(list), maxNamedPorts)] {
			ports = append(ports, fmt.Sprint(s.Port))
		}
		has := strings.Join(ports, ", ")
		if len(list) > maxNamedPorts {
			has += " and others"
		}
		return fmt.Sprintf("%s has no port %d; it has %s", describe(named), *ref.Port, has)
	}
	return "there is no " + describe(named) + r.near(near, ref.Kind, ref.Name, ref.Namespace)
}

// near returns a suggestion: a service of the kind in another namespace or with a similar name, or
// "".
func (r *Reach) near(look bool, kind, name, namespace string) string {
	if !look || len(name) < 3 {
		return ""
	}
	var names []string
	last := ""
	for _, s := range r.view.services {
		if s.ID.Kind != kind || len(names) == maxCandidates {
			continue
		}
		have := s.Tag
		if kind != KindTag {
			have = s.Resource.Name
			if ns := s.Labels[resource.LabelNamespace]; ns != "" {
				if base := strings.TrimSuffix(have, "."+ns); base == name && ns != namespace {
					return fmt.Sprintf("; there is one in namespace %q", ns)
				}
				if namespace != "" || r.dataplane.Namespace() == ns {
					have = strings.TrimSuffix(have, "."+ns)
				}
			}
		}
		// Names of very different length are never similar.
		if d := len(have) - len(name); have != last && d <= max(1, len(name)/3) && -d <= max(1, len(name)/3) {
			names = append(names, have)
			last = have
		}
	}
	if near := strict.Nearest(name, names); near != "" && near != name {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
