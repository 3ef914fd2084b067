package reconcile

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// demands are the requirements of a config on its host, cached while its listeners and clusters are
// unchanged.
type demands struct {
	check.Demands
	listeners, clusters string // versions
}

// host describes the host of a proxy's Envoy, or nil for other clients.
func (r *Reconciler) host(key node.Key, s *proxyState, build *finding.Build) *finding.Host {
	if build == nil || r.o.Host == nil {
		return nil
	}
	sealed := s.proxy.Sealed
	listeners, clusters := sealed.Versions[draft.RankListener], sealed.Versions[draft.Rank(draft.TypeCluster)]
	if s.demands.listeners != listeners || s.demands.clusters != clusters {
		d, err := guard(r.o.Log, "demands of proxy "+key.ID, func() (check.Demands, error) {
			return r.checker.Demands(s.proxy.Snapshot()), nil
		})
		if err != nil {
			r.checker = &check.Checker{} // it may be inconsistent
		}
		s.demands = demands{d, listeners, clusters}
	}
	return r.o.Host(key, s.demands.Files)
}

// ownFiles is the number of files that an Envoy needs in addition to listener sockets: 29 with one
// worker, 4 for each further worker, and logs.
const ownFiles = 64

// oldestEnvoy is the oldest tested minor version of Envoy 1 (docs/xds.md).
const oldestEnvoy = 36

// buildWarning returns a warning if an Envoy is too old, or "".
func buildWarning(b *finding.Build) string {
	if b == nil || !b.Version.Below(1, oldestEnvoy) {
		return ""
	}
	return fmt.Sprintf("its Envoy %s is older than 1.%d, the oldest supported version: it may "+
		"reject configs or behave differently than explain says. Upgrade it", b.Version, oldestEnvoy)
}

// hostWarnings returns warnings about the host that an Envoy would not report as a rejection.
func hostWarnings(h *finding.Host, d *demands) (out []string) {
	if h == nil {
		return nil
	}
	workers := max(h.Workers, 1)
	if need := uint64(d.Sockets)*uint64(workers) + uint64(4*workers+len(d.Files)+ownFiles); h.OpenFiles > 0 &&
		need > h.OpenFiles {
		out = append(out, fmt.Sprintf(
			"its Envoy may open %d files, and %d listeners with %d workers need about %d: it exits at the limit. "+
				"Raise LimitNOFILE of its unit (or ulimit -Hn), or start it with a lower --concurrency", h.OpenFiles, d.Sockets,
			workers, need))
	}
	if h.Resolver != "" && d.Names {
		out = append(out, h.Resolver+": Envoy reads this file again only if a server refuses a query, "+
			"so host names of its clusters may not resolve. Restart the Envoy")
	}
	return out
}
