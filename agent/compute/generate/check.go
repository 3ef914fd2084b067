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

// Check returns what the Envoy of p would reject or could not use in its config, given the config
// that it has accepted so far (nil for an Envoy that starts); see [check.Checker]. It returns
// nothing for a proxyless gRPC client, which has different rules.
func (p *Proxy) Check(c *check.Checker, accepted *draft.Sealed) []finding.Finding {
	if p.Flavor == node.FlavorGRPC {
		return nil
	}
	prev := &envoy.Snapshot{}
	if accepted != nil {
		prev = &accepted.Resources
	}
	// These facts hold for every Envoy that starts with the bootstrap of package bootstrap.
	return c.Check(prev, p.Snapshot(), &finding.Facts{Build: p.Build, Host: p.Host,
		StaticClusters: bootstrap.StaticClusters(),
		RE2Limit:       math.MaxUint32, SecretsLater: p.placeholders()})
}

// placeholders reports whether the config has placeholder secrets: no certificates exist yet, or
// some mesh of a zone proxy has none.
func (p *Proxy) placeholders() bool {
	if p.border != nil {
		return slices.Contains(p.border.secrets, identity.Placeholder())
	}
	return p.secrets == identity.Placeholder()
}

// StillFit reports whether the config certainly has the same findings as was, a previous config of
// the same Envoy of which nothing was withheld. This cheap test covers most changes of a mesh.
func (p *Proxy) StillFit(c *check.Checker, was *draft.Sealed) bool {
	return p.Flavor != node.FlavorGRPC && c.SameFindings(&was.Resources, &p.Sealed.Resources)
}
