package reconcile

import (
	"fmt"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// demands are what the config of a proxy takes from its host, remembered as long as its listeners
// and clusters stay.
type demands struct {
	check.Demands
	listeners, clusters string // versions
}

// host returns what is known of the host of a proxy's Envoy; nil where the client is none.
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
			r.checker = &check.Checker{} // it may have been left half-changed
		}
		s.demands = demands{d, listeners, clusters}
	}
	return r.o.Host(key, s.demands.Files)
}

// ownFiles is how many files an Envoy may have open beside the sockets of its listeners before it
// serves anybody: 29 with one worker, 4 more for each further one, and logs.
const ownFiles = 64

// oldestEnvoy is the oldest minor version of Envoy 1 that configs are tested with (docs/xds.md).
const oldestEnvoy = 36

// buildWarning says that an Envoy is too old; "" where it is not, or does not say.
func buildWarning(b *finding.Build) string {
	if b == nil || !b.Version.Below(1, oldestEnvoy) {
		return ""
	}
	return fmt.Sprintf("its Envoy %s is older than 1.%d, the oldest that configs are made for and tested with: it may "+
		"reject them or act otherwise than explain says. Upgrade it", b.Version, oldestEnvoy)
}

// hostWarnings says what on the host breaks an Envoy without a rejection.
func hostWarnings(h *finding.Host, d *demands) (out []string) {
	if h == nil {
		return nil
	}
	workers := max(h.Workers, 1)
	if need := uint64(d.Sockets)*uint64(workers) + uint64(4*workers+len(d.Files)+ownFiles); h.OpenFiles > 0 &&
		need > h.OpenFiles {
		out = append(out, fmt.Sprintf(
			"its Envoy may open %d files, and %d listeners with %d workers take about %d: it ends when it can open no more. "+
				"Raise LimitNOFILE of its unit (or ulimit -Hn), or start it with a lower --concurrency", h.OpenFiles, d.Sockets,
			workers, need))
	}
	if h.Resolver != "" && d.Names {
		out = append(out, h.Resolver+": it reads that file again only when a server refuses, "+
			"so host names of its clusters may not resolve. Restart the Envoy")
	}
	return out
}
