package generate

import (
	"math"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/bootstrap"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// Check says what the Envoy of p would make of its config, given what it has accepted so far (nil
// for one that starts); see [check.Checker]. A gRPC client that is its own proxy has rules of its
// own, of which nothing is said.
func (p *Proxy) Check(c *check.Checker, accepted *draft.Sealed) []finding.Finding {
	if p.Flavor == node.FlavorGRPC {
		return nil
	}
	prev := &envoy.Snapshot{}
	if accepted != nil {
		prev = &accepted.Resources
	}
	// These hold for every Envoy that starts with the bootstrap of package bootstrap.
	return c.Check(prev, p.Snapshot(), &finding.Facts{Build: p.Build, Host: p.Host,
		StaticClusters: bootstrap.StaticClusters(),
		RE2Limit:       math.MaxUint32, SecretsLater: p.placeholders()})
}

// placeholders reports whether something in the config stands for a secret: nobody has yet made
// one, and at the border of a zone what other meshes need is sent all the same.
func (p *Proxy) placeholders() bool {
	if p.border != nil {
		return slices.Contains(p.border.secrets, identity.Placeholder())
	}
	return p.secrets == identity.Placeholder()
}

// StillFit reports whether a config need not be checked where nothing of another one, was, is
// withheld: the two differ in lists of endpoints alone, and those are good by themselves. It is
// what most changes of a mesh come to, and cheap.
func (p *Proxy) StillFit(c *check.Checker, was *draft.Sealed) bool {
	rank := draft.Rank(draft.TypeEndpoint)
	for i, v := range p.Sealed.Versions {
		if i != rank && v != was.Versions[i] {
			return false
		}
	}
	list, before := p.Sealed.Resources[rank], was.Resources[rank]
	if p.Flavor == node.FlavorGRPC || len(list) != len(before) {
		return false
	}
	for i, r := range list {
		if r != before[i] && (r.Name != before[i].Name || !c.Plain(envoy.KindEndpoint, r)) {
			return false
		}
	}
	return true
}
