package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// kindLegacyPermission is the legacy kind that decides about clients.
const kindLegacyPermission = "TrafficPermission"

// suggest returns the smallest change of a policy that makes a no a yes, as YAML, "" for none. Each change that may do is
// tried on the mesh, and the first is returned with which the question has another answer.
func (t *Traffic) suggest(p *flowProxy, target *Target, d *dialled, in *inquiry, flow *Flow) string {
	reg, err := t.registry()
	if err != nil {
		return ""
	}
	for _, doc := range t.changes(p, d, in, flow) {
		rs, faults := reg.Decode("", []byte(doc))
		if len(faults) > 0 || len(rs) != 1 {
			continue
		}
		then := NewTraffic(t.mesh.WithPolicies(rs[0]))
		q, err := then.proxy(target.From)
		if err != nil {
			continue
		}
		if missing, _ := q.unreachable(then, d); missing == nil && then.follow(q, d, in).Verdict == VerdictAllowed {
			return doc
		}
	}
	return ""
}

// registry knows the kinds of the mesh.
func (t *Traffic) registry() (*resource.Registry, error) {
	if t.mesh.Policies == nil {
		return nil, fmt.Errorf("the mesh has no policies")
	}
	kinds := resource.Core()
	for i := range t.mesh.Policies.Plugins {
		plugin := &t.mesh.Policies.Plugins[i]
		kinds = append(kinds, plugin.Kinds...)
		for j := range plugin.Legacy {
			kinds = append(kinds, plugin.Legacy[j].Descriptor)
		}
	}
	return resource.NewRegistry(kinds...)
}

// changes lists what may help, the smallest change first.
func (t *Traffic) changes(p *flowProxy, d *dialled, in *inquiry, flow *Flow) []string {
	for i := range flow.Servers {
		if s := &flow.Servers[i]; s.Verdict == VerdictDenied {
			return t.permissions(p, s)
		}
	}
	switch {
	case flow.missing != nil && flow.closed:
		return nil
	case flow.missing != nil:
		return t.admitting(p, flow.missing)
	case isPassthrough(flow.Listener) && p.virtual(d.dst.Addr()):
		return nil // the address is one of the mesh, and nothing is behind it outside
	case isPassthrough(flow.Listener):
		return t.passes(p, d, in)
	case in.req != nil && flow.Verdict == VerdictDenied && len(flow.Servers) == 0:
		return t.routes(p, in, flow)
	}
	return nil
}

// virtual reports whether an address is that of outbounds.
func (p *flowProxy) virtual(addr netip.Addr) bool {
	return slices.ContainsFunc(p.outbounds, func(o mesh.Outbound) bool { return o.Address == addr })
}

// passes lets out what goes to no service of the mesh.
func (t *Traffic) passes(p *flowProxy, d *dialled, in *inquiry) []string {
	kind, value, protocol := "IP", d.dst.Addr().String(), "tcp"
	name := strings.ToLower(in.sni)
	switch {
	case in.req != nil:
		protocol = "http"
		if in.first == match.H2C {
			protocol = "http2"
		}
		name = hostOf(in.req.Host)
	case in.first == match.TLSHello:
		protocol = "tls"
	}
	if _, err := parseIP(name); name != "" && err != nil {
		kind, value = "Domain", name
	} else if d.any {
		return nil // an entry about an address that stands for any would let nothing out
	}
	var b document
	b.head(kindPassthrough, t.mesh.View.Name, t.free(kindPassthrough, "allow-"+value))
	b.line("spec:")
	b.line("  targetRef: {kind: Dataplane, name: %s}", scalar(p.dataplane.Name))
	b.line("  default:")
	b.line("    passthroughMode: Matched")
	b.line("    appendMatch:")
	b.line("    - {type: %s, value: %s, port: %d, protocol: %s}", kind, scalar(value), d.dst.Port(), protocol)
	return []string{b.String()}
}

// permissions lets the client in at a server.
func (t *Traffic) permissions(client *flowProxy, server *Way) []string {
	to := t.proxies[server.Dataplane.Name]
	at, err := netip.ParseAddrPort(server.Address)
	if to == nil || err != nil {
		return nil
	}
	i := to.inboundIndex(at)
	from := t.services(client)
	if i < 0 || len(from) == 0 || server.Status != 0 && !decidedByRules(server) {
		return nil
	}
	rules := to.rules()
	if rules.Kind(kindPermission).Inbound(i) == nil {
		if legacy := rules.LegacyInbound(kindLegacyPermission, i); len(legacy) > 0 {
			return widened(legacy[0], from[0])
		}
	}
	var out []string
	inbound := &to.spec.Networking.Inbound[i]
	service := inbound.Tags[resource.TagService]
	for _, top := range []string{
		fmt.Sprintf("{kind: MeshService, name: %s}", scalar(service)),
		fmt.Sprintf("{kind: Dataplane, name: %s}", scalar(to.dataplane.Name)),
		fmt.Sprintf("{kind: Dataplane, name: %s, sectionName: %s}", scalar(to.dataplane.Name), scalar(cmp.Or(inbound.Name, strconv.FormatUint(uint64(inbound.Port), 10)))),
	} {
		var b document
		b.head(kindPermission, t.mesh.View.Name, t.free(kindPermission, "allow-"+from[0]+"-to-"+service))
		b.line("spec:")
		b.line("  targetRef: %s", top)
		b.line("  from:")
		b.line("  - targetRef: {kind: MeshService, name: %s}", scalar(from[0]))
		b.line("    default: {action: Allow}")
		out = append(out, b.String())
	}
	return out
}

// decidedByRules reports whether a filter that knows the client said no, and not a route.
func decidedByRules(f *Way) bool {
	return len(f.Steps) > 0 && slices.ContainsFunc(f.Steps, func(s FlowStep) bool {
		return (s.At == "http-filter" || s.At == "network-filter") && len(s.Policies) > 0
	}) || f.Status == 403
}

// widened is a legacy permission with one more source: of those about an inbound the strongest alone counts, so that
// another one would take its place.
func widened(r *resource.Resource, from string) []string {
	spec, ok := r.Spec.(*resource.LegacyPolicy)
	if !ok {
		return nil
	}
	var b document
	b.head(r.Kind, r.Mesh, r.Name)
	for _, part := range []struct {
		name string
		list []resource.LegacySelector
	}{{"sources", slices.Concat(spec.Sources, []resource.LegacySelector{{Match: map[string]string{resource.TagService: from}}})}, {"destinations", spec.Destinations}} {
		b.line("%s:", part.name)
		for _, s := range part.list {
			b.line("- match: %s", mapping(s.Match))
		}
	}
	return []string{b.String()}
}

// routes adds a route for a request that none takes.
func (t *Traffic) routes(p *flowProxy, in *inquiry, flow *Flow) []string {
	at := strings.TrimPrefix(flow.Listener, "outbound:")
	i := slices.IndexFunc(p.outbounds, func(o mesh.Outbound) bool {
		return netip.AddrPortFrom(o.Address, uint16(o.Port)).String() == at
	})
	from := t.services(p)
	if i < 0 || len(from) == 0 {
		return nil
	}
	s := p.outbounds[i].Service
	ref := fmt.Sprintf("{kind: MeshService, name: %s}", scalar(s.ID.Name))
	if s.ID.Kind != mesh.KindTag {
		ref = fmt.Sprintf("{kind: %s, name: %s, port: %d}", s.ID.Kind, scalar(s.Resource.Name), s.Port)
	}
	path, _, _ := strings.Cut(in.req.Path, "?")
	var b document
	b.head(kindHTTPRoute, t.mesh.View.Name, t.free(kindHTTPRoute, "allow-"+from[0]+"-to-"+s.ID.Name))
	b.line("spec:")
	b.line("  targetRef: {kind: MeshService, name: %s}", scalar(from[0]))
	b.line("  to:")
	b.line("  - targetRef: %s", strings.Replace(ref, fmt.Sprintf(", port: %d", s.Port), "", 1))
	b.line("    rules:")
	b.line("    - matches:")
	b.line("      - path: {type: Exact, value: %s}", scalar(path))
	b.line("      default:")
	b.line("        backendRefs:")
	b.line("        - %s", ref)
	return []string{b.String()}
}

// free is a name that no policy of a kind has.
func (t *Traffic) free(kind, want string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-':
			return r
		}
		return '-'
	}, strings.ToLower(want)), "-.")
	name = strings.Trim(name[:min(len(name), 200)], "-.")
	taken := func(n string) bool {
		return slices.ContainsFunc(t.mesh.Policies.Policies(kind), func(r *resource.Resource) bool { return r.Name == n })
	}
	out := name
	for i := 2; taken(out); i++ {
		out = name + "-" + strconv.Itoa(i)
	}
	return out
}

// hostOf is the host of an authority without its port, in lower case.
func hostOf(authority string) string {
	host := authority
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
