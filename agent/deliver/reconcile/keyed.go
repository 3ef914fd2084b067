package reconcile

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/base/plural"
	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// keyed caches the warnings about resources with inline keys in a config.
type keyed struct {
	of   *draft.Sealed
	text []string
}

// withheldKeys returns a warning for each resource that package rollout withholds from a client
// without encryption, because it holds an inline key; at most maxProxyWarnings.
func (p *pass) withheldKeys(key node.Key, s *proxyState) []string {
	if p.r.o.Plain == nil || !p.r.o.Plain(key) {
		s.keyed = keyed{}
		return nil
	}
	if s.keyed.of == s.proxy.Sealed {
		return s.keyed.text
	}
	s.keyed = keyed{of: s.proxy.Sealed}
	more := 0
	for rank, list := range s.proxy.Sealed.Resources {
		if rank == draft.RankSecret {
			continue // never served to such a client
		}
		for _, r := range list {
			at, holds := danger.KeyIn(draft.Types[rank], r.Body())
			switch {
			case !holds:
			case len(s.keyed.text) < maxProxyWarnings:
				s.keyed.text = append(s.keyed.text, fmt.Sprintf("%s %q is not sent: it has a key or a password at %s, and its "+
					"Envoy is connected without encryption; connect the Envoy to the unix socket, or set xds.tls and give it a token",
					draft.Types[rank][strings.LastIndexByte(draft.Types[rank], '.')+1:], clip.Value(r.Name), at))
			default:
				more++
			}
		}
	}
	if more > 0 {
		s.keyed.text = append(s.keyed.text, plural.Count(more, "more resource")+" with a key or a password not sent")
	}
	return s.keyed.text
}
