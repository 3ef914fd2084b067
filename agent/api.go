package agent

import (
	"context"
	"os"

	"github.com/nearside-mesh/nearside/agent/deliver/write"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

func (a *Agent) inspectOptions(cfg *config.Config, who httpapi.Access) httpapi.Options {
	queries := a.newQueries(cfg)
	a.queries.Store(queries)
	return httpapi.Options{
		ReadLogs: queries.Serve, Edges: a.edges.Serve, Debug: a.debugText,
		Info: api.Info{Product: "nearside", Version: a.deps.Version, Node: cfg.Node.Name, Zone: cfg.Node.Zone,
			Instance: a.instance, Started: a.started, PID: os.Getpid()},
		Options: write.Options{Registry: a.registry, Store: a.store, Last: a.reconciler.Last,
			NewMesh: a.reconciler.NewMesh, Connected: a.rollout.Connected, Offer: a.reconciler.Offer, Publication: a.publication,
			NewTry: a.newTry(),
			Spare:  a.memory.Spare, Log: a.log},
		Proxies: a.rollout.Status, Refused: a.xds.Refused, Memory: a.memoryStatus, ProxiesOf: a.rollout.StatusOf,
		InUse: a.rollout.InUse, Drains: a.drains,
		DNS: a.resolver.State, DNSLine: a.resolver.Line,
		Pool: a.pool(), Authors: a.authors,
		Envoy: func(p *api.ProxyStatus) httpapi.Envoy {
			return envoyadmin.Envoy{Dir: envoyDir(cfg), ID: p.NodeID, Peer: p.Peer}
		},
		Drain: func(ctx context.Context, key resource.Key, q *api.DrainRequest, who string) (*api.Drain, *api.Error) {
			return a.draining.Run(ctx, key, q, false, who)
		},
		Certificate: a.reconciler.Issued,
		Holders:     a.logs.Holders, Logs: a.account, FlushLogs: a.logs.Flush, AuditFile: cfg.AuditLogPath(),
		AuditChain: a.auditChain,
		Counts:     a.proxyCounts,
		Progress:   a.rollout.Progress, Watch: a.rollout.Watch, Files: a.dir.Files, CatchUp: a.dir.CatchUp,
		Events:    &a.events,
		Suspended: a.unserved,
		Live:      a.live, Ready: a.readiness, Host: a.hostChecks, Access: who, Audit: a.audit,
		Metrics: a.deps.Metrics, Measure: a.deps.Metrics, Level: a.deps.Level,
	}
}
