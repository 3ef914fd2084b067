package agent

import (
	"encoding/json"
	"slices"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/edgesapi"
	"github.com/nearside-mesh/nearside/agent/serve/logsapi"
)

// newEdges returns the server of edges between services.
func (a *Agent) newEdges() *edgesapi.Edges {
	return edgesapi.New(edgesapi.Options{
		Meshes: func() map[string]*generate.Mesh {
			if last := a.reconciler.Last(); last != nil {
				return last.Meshes
			}
			return nil
		},
		Proxies: a.rollout.Status, Counts: a.proxyCounts, Now: a.deps.Now,
	})
}

// proxyCounts returns the counters of the connected Envoys by node ID.
func (a *Agent) proxyCounts() map[string]api.ProxyCounts {
	of, _ := a.refused.read()
	return of
}

// logFormatKinds lists the kinds of resources with formats of access logs.
var logFormatKinds = []string{"MeshAccessLog", "MeshAccessLogBackend", "GlobalAccessLogBackend", "Mesh"}

// newQueries returns the server of log files.
func (a *Agent) newQueries(cfg *config.Config) *logsapi.Logs {
	o := logsapi.Options{Node: cfg.Node.Name, Streams: a.logStreams, AuditFile: cfg.AuditLogPath(),
		DNSFile: func() string {
			if q := a.resolver.State().QueryLog; q != nil {
				return q.File
			}
			return ""
		},
		Policies: func() (out []json.RawMessage) {
			for _, rec := range a.store.Snapshot().Records() {
				if !slices.Contains(logFormatKinds, rec.Kind) {
					continue
				}
				if doc, err := resource.Marshal(rec.Resource); err == nil {
					out = append(out, doc)
				}
			}
			return out
		},
		Share: cfg.AccessLog.Share, Now: a.deps.Now,
	}
	if a.peers != nil {
		o.Others = a.peers.AskOthers
	}
	return logsapi.New(o)
}
