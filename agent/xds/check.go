package xds

import (
	"math"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy"
)

// Check says what the Envoy of p would make of its config, given what it has accepted so far (nil for one that starts);
// see [envoy.Checker]. A gRPC client that is its own proxy has rules of its own, of which nothing is said.
func (p *Proxy) Check(c *envoy.Checker, accepted *draft.Sealed) []envoy.Finding {
	if p.Flavor == FlavorGRPC {
		return nil
	}
	prev := &envoy.Snapshot{}
	if accepted != nil {
		prev = snapshot(accepted)
	}
	return c.Check(prev, p.Snapshot(), &facts)
}

// facts hold for every Envoy that starts with the bootstrap of this package.
var facts = envoy.Facts{StaticClusters: []string{xdsCluster}, RE2Limit: math.MaxUint32, SecretsLater: true}
