package peers

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/gossip/engine"
	"github.com/nearside-mesh/nearside/gossip/engine/sign"
)

// Authors returns a function that names the author of a change, given the name that the change
// claims and the key that signed it, or zero. The function has the names of this moment, and is
// safe for concurrent use.
func (s *Source) Authors() func(name string, signer sign.ID) api.Author {
	nodes, state := map[engine.NodeID]string{s.node.Self(): s.o.Node}, s.policy.State()
	for _, o := range s.node.Owners() {
		nodes[o.Node] = o.Name
	}
	for _, m := range s.node.Members() {
		if m.Name != "" {
			nodes[m.Node] = m.Name
		}
	}
	return func(name string, signer sign.ID) api.Author {
		if signer == (sign.ID{}) {
			return api.Author{Name: name}
		}
		a := api.Author{Name: name, Verified: true}
		known := state.NameOf(signer)
		if node, ok := nodes[engine.NodeID(signer)]; ok {
			a.Node = node
		} else if node, ok := strings.CutPrefix(known, "node "); ok {
			a.Node = node
		} else if a.Key = known; known == "" {
			a.Key = signer.String()
		}
		return a
	}
}
