package traffic

import (
	"go.yaml.in/yaml/v3"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// fragment is the proposed part of a Dataplane.
type fragment struct {
	Networking struct {
		TransparentProxying struct {
			ReachableServices yaml.Node `yaml:"reachableServices,omitempty"`
			ReachableBackends yaml.Node `yaml:"reachableBackends,omitempty"`
		} `yaml:"transparentProxying"`
	} `yaml:"networking"`
}

// entry is an entry of reachableBackends.refs; its fields are in output order.
type entry struct {
	Kind      string `yaml:"kind"`
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace,omitempty"`
	Port      uint32 `yaml:"port"`
}

// write renders the fragment. It never copies text from log lines: names come from the mesh, and
// comments contain only numbers and times.
func (p *ReachableProposal) write(b *explain.Backends, items []int, evidence map[int]*Evidence) error {
	if len(p.ReachableServices) == 0 && p.ReachableBackends == nil {
		return nil
	}
	var f fragment
	services, refs := yaml.Node{Kind: yaml.SequenceNode}, &yaml.Node{Kind: yaml.SequenceNode}
	for _, i := range items {
		e, x := evidence[i], &b.Items[i]
		if !e.Proposed {
			continue
		}
		n := &yaml.Node{}
		var err error
		if x.Kind == mesh.KindTag {
			err = n.Encode(x.Name)
			services.Content = append(services.Content, n)
		} else {
			err = n.Encode(entry{x.Ref.Kind, x.Ref.Name, x.Ref.Namespace, *x.Ref.Port})
			n.Style = yaml.FlowStyle
			refs.Content = append(refs.Content, n)
		}
		if err != nil {
			return err
		}
		n.HeadComment = e.comment()
	}
	if len(services.Content) > 0 {
		f.Networking.TransparentProxying.ReachableServices = services
	}
	if p.ReachableBackends != nil {
		if len(refs.Content) == 0 {
			refs.Style = yaml.FlowStyle
		}
		f.Networking.TransparentProxying.ReachableBackends = yaml.Node{Kind: yaml.MappingNode,
			Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "refs"}, refs}}
	}
	text, err := yamlText(f)
	p.Fragment = text
	return err
}

// comment explains why an entry is proposed.
func (e *Evidence) comment() string {
	switch {
	case e.Why == WhyUnlogged:
		return "not logged, so its use is unknown"
	case e.Why == WhyListed:
		return "listed before; not used in the logs"
	case e.Why == WhyPermitted:
		return "permitted; not used in the logs"
	case e.Last != "":
		return plural.Form(e.Lines, "1 line, at ", "%d lines, the last at ") + e.Last
	}
	return plural.Count(e.Lines, "line")
}
