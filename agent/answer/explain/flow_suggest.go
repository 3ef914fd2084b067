package explain

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// suggest returns the smallest change of a policy with which what fails is allowed, as YAML, "" for
// none. Each change that plugins propose is tried on the mesh. None lets a name of the meshes out:
// the reason then says what the name is.
func (t *Traffic) suggest(p *flowProxy, target *Target, d *dialled, in *inquiry, flow *Flow) string {
	denial := t.denial(p, d, flow)
	reg, err := t.registry()
	if err != nil || denial == nil || len(denial.Client) == 0 && denial.Reason != policy.NotLetOut {
		return ""
	}
	if denial.Reason == policy.NotLetOut {
		for _, host := range []string{denial.Host, d.host} {
			if own := t.ofMesh(p, strings.ToLower(strings.TrimSuffix(host, ".")), d.dst.Port()); host != "" && own != "" {
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
					flow.Wildcard = t.wildcard(strings.ToLower(strings.TrimSuffix(denial.Host, ".")))
				}
				return string(doc)
			}
		}
	}
	return ""
}

// registry knows the kinds of the mesh.
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

// denial says at what a flow fails, nil where no policy could change that.
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
			return nil // the address is one of the mesh, and nothing is behind it outside
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

// decidedByRules reports whether a filter that knows the client denied, and not a route.
func decidedByRules(f *Way) bool {
	return f.Status == 403 || slices.ContainsFunc(f.Steps, func(s FlowStep) bool {
		return (s.At == "http-filter" || s.At == "network-filter") && len(s.Policies) > 0
	})
}

// plainScalar is a string that needs no quotes, but those that YAML knows as another value; YAML
// 1.1 knows more of them.
var (
	plainScalar  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
	yaml11Truths = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off)$`)
)

// yamlOf writes JSON as YAML. A mapping of plain values stands on one line, but one that is the
// whole document does not where block is true. Nil for what is no JSON.
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

// inline is a value as YAML on one line.
func inline(v any) string { return strings.TrimSpace(string(yamlOf(jsonOf(v), false))) }

// hostOf is the host of an authority without its port, in lower case.
func hostOf(authority string) string {
	host := authority
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
