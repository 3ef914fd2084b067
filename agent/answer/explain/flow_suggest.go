package explain

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// suggest returns a minimal policy that would allow the flow, as YAML, or "" if there is none. It
// tests each proposal of the plugins on the mesh. A name of a mesh is never permitted as an
// external host; the reason then says what the name is.
func (t *Traffic) suggest(p *flowProxy, target *Target, d *dialled, in *inquiry, flow *Flow) string {
	denial := t.denial(p, d, flow)
	reg, err := t.registry()
	if err != nil || denial == nil || len(denial.Client) == 0 && denial.Reason != policy.NotLetOut {
		return ""
	}
	if denial.Reason == policy.NotLetOut {
		for _, host := range []string{denial.Host, d.host} {
			own := t.meshNameReason(p, strings.ToLower(strings.TrimSuffix(host, ".")), d.dst.Port())
			if host != "" && own != "" {
				flow.Reason += "; " + own
				return ""
			}
		}
	}
	for plugin := range t.plugins() {
		if plugin.Suggest == nil {
			continue
		}
		for _, r := range plugin.Suggest(denial) {
			text, err := resource.Marshal(r)
			if err != nil {
				continue
			}
			doc := yamlOf(text, true)
			rs, faults := reg.Decode("", doc)
			if len(faults) > 0 || len(rs) != 1 {
				continue
			}
			then := NewTraffic(t.mesh.WithPolicies(rs[0]))
			then.Build = t.Build
			q, err := then.proxy(target.From)
			if err != nil {
				continue
			}
			if missed, _ := q.unreachable(then, d); missed == nil && then.follow(q, d, in).Verdict == VerdictAllowed {
				if denial.Reason == policy.NotLetOut {
					flow.Wildcard = t.wildcard(p, strings.ToLower(strings.TrimSuffix(denial.Host, ".")))
				}
				return string(doc)
			}
		}
	}
	return ""
}

// registry returns a registry with the kinds of the mesh.
func (t *Traffic) registry() (*resource.Registry, error) {
	kinds := resource.Core()
	for p := range t.plugins() {
		kinds = append(kinds, p.Kinds...)
		for i := range p.Legacy {
			kinds = append(kinds, p.Legacy[i].Descriptor)
		}
	}
	return resource.NewRegistry(kinds...)
}

// denial describes why a flow is denied; nil if no policy could allow it.
func (t *Traffic) denial(p *flowProxy, d *dialled, flow *Flow) *policy.Denial {
	a, out := flow.about, &policy.Denial{Missed: flow.missed, AnyAddress: d.any, Client: t.services(p)}
	server := slices.IndexFunc(flow.Servers, func(s Way) bool { return s.Verdict == VerdictDenied })
	switch {
	case server >= 0:
		if s := &flow.Servers[server]; s.about.inbound < 0 || s.about.egress || s.Status != 0 && !decidedByRules(s) {
			return nil
		}
		a, out.Reason = flow.Servers[server].about, policy.NotAdmitted
	case flow.missed != nil && flow.closed:
		return nil
	case flow.outside != nil:
		out.Reason, out.Flow = policy.NotAdmittedOutside, ofDestination(a.flow(), flow.outside)
		return out
	case flow.missed != nil:
		out.Reason = policy.NotReached
	case isPassthrough(flow.Listener):
		if slices.ContainsFunc(p.outbounds, func(o mesh.Outbound) bool { return o.Address == d.dst.Addr() }) {
			return nil // an address of the mesh has no destination outside
		}
		out.Reason = policy.NotLetOut
	case a.in.req != nil && flow.Verdict == VerdictDenied && len(flow.Servers) == 0:
		out.Reason = policy.NotRouted
	default:
		return nil
	}
	out.Flow = a.flow()
	return out
}

// decidedByRules reports whether a filter with policies denied the request, rather than a route.
func decidedByRules(f *Way) bool {
	return f.Status == 403 || slices.ContainsFunc(f.Steps, func(s FlowStep) bool {
		return (s.At == "http-filter" || s.At == "network-filter") && len(s.Policies) > 0
	})
}

// Strings that need no quotes in YAML, and the values that YAML 1.1 reads as booleans.
var (
	plainScalar  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
	yaml11Truths = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off)$`)
)

// yamlOf converts JSON to YAML. A mapping of scalars is written on one line, unless it is the whole
// document and block is true. It returns nil if text is not JSON.
func yamlOf(text []byte, block bool) []byte {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil {
		return nil
	}
	var layOut func(n *yaml.Node, block bool)
	layOut = func(n *yaml.Node, block bool) {
		n.Style &^= yaml.FlowStyle
		simple := n.Kind == yaml.MappingNode && !block
		for _, c := range n.Content {
			layOut(c, n.Kind == yaml.DocumentNode && block)
			simple = simple && c.Kind == yaml.ScalarNode
		}
		switch {
		case simple:
			n.Style |= yaml.FlowStyle
		case n.Kind == yaml.ScalarNode && plainScalar.MatchString(n.Value) && !yaml11Truths.MatchString(n.Value):
			n.Style = 0
		}
	}
	layOut(&doc, block)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if enc.Encode(&doc) != nil {
		return nil
	}
	return out.Bytes()
}

// inline returns a value as YAML on one line.
func inline(v any) string { return strings.TrimSpace(string(yamlOf(effect.JSONOf(v), false))) }

// hostOf returns the host of an authority in lower case, without the port.
func hostOf(authority string) string {
	host := authority
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
