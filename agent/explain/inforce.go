package explain

import (
	"github.com/nearside-mesh/nearside/agent/generate"
	"github.com/nearside-mesh/nearside/agent/node"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// InForce is what the policies of one kind let a proxy do as a whole.
type InForce struct {
	Type    string     `json:"type"`
	Mode    string     `json:"mode"`    // in the words of the kind
	Decides FlowPolicy `json:"decides"` // what gives the mode
	// Permits are what may be done where the mode leaves that to be said; never null.
	Permits []Permit `json:"permits"`
}

// Permit is one thing that a proxy may do. Lists are never null.
type Permit struct {
	Protocol string `json:"protocol"`
	Value    string `json:"value"`          // the destination, as policies write it
	Port     uint32 `json:"port,omitempty"` // 0: all ports
	Cluster  string `json:"cluster"`        // whose statistics count it
	// Pinned is true where the proxy looks the destination up by itself; Reaches says in words where it leads.
	Pinned     bool         `json:"pinned"`
	Reaches    string       `json:"reaches"`
	IPv4       bool         `json:"ipv4"` // the address families in which it acts
	IPv6       bool         `json:"ipv6"`
	AccessLogs []FlowLog    `json:"accessLogs"`
	Policies   []FlowPolicy `json:"policies"` // that ask for it
}

// ProxyInForce says what of the policies is in force for a dataplane as a whole, in the order in which kinds act. It is
// pure. The error is an *generate.NotFoundError when the mesh has no such dataplane.
func ProxyInForce(m *generate.Mesh, name string) ([]InForce, error) {
	dp := m.View.Dataplane(name)
	if dp == nil {
		return nil, &generate.NotFoundError{Mesh: m.View.Name, Name: name}
	}
	spec, ok := dp.Spec.(*resource.Dataplane)
	if !ok || m.Policies == nil {
		return nil, nil
	}
	c := &policy.Context{View: m.View, Proxy: dp, Dataplane: spec, Rules: m.Policies.Rules(dp)}
	var out []InForce
	var logs map[string][]FlowLog
	for i := range m.Policies.Plugins {
		ask := m.Policies.Plugins[i].InForce
		if ask == nil {
			continue
		}
		found := ask(c)
		if found == nil {
			continue
		}
		one := InForce{Type: found.Kind, Mode: found.Mode, Decides: writtenIn(found.Decides), Permits: make([]Permit, 0, len(found.Permits))}
		if logs == nil && len(found.Permits) > 0 {
			logs = map[string][]FlowLog{} // none where its config cannot be made, which other views tell
			if config, err := generate.Generate(generate.Input{Mesh: m, Name: name, Flavor: node.FlavorEnvoy}, nil, nil); err == nil {
				logs = LogsByCluster(config)
			}
		}
		for j := range found.Permits {
			p := &found.Permits[j]
			made := Permit{
				Protocol: p.Protocol, Value: p.Value, Port: p.Port, Cluster: p.Cluster, Pinned: p.Pinned, Reaches: p.Reaches,
				IPv4: p.IPv4, IPv6: p.IPv6, AccessLogs: []FlowLog{}, Policies: []FlowPolicy{},
			}
			made.AccessLogs = append(made.AccessLogs, logs[p.Cluster]...)
			for _, w := range p.Sources {
				made.Policies = append(made.Policies, writtenIn(w))
			}
			one.Permits = append(one.Permits, made)
		}
		out = append(out, one)
	}
	return out, nil
}

func writtenIn(w policy.Written) FlowPolicy {
	return FlowPolicy{Ref: RefOf(w.Resource), Field: w.Field}
}
