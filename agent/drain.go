package agent

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/deliver/proxydrain"
	"github.com/nearside-mesh/nearside/agent/deliver/status"
	"github.com/nearside-mesh/nearside/agent/host/config"
	"github.com/nearside-mesh/nearside/agent/host/envoyadmin"
	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
)

// openDrains creates what drains proxies, after the pool is opened.
func (a *Agent) openDrains(cfg *config.Config) {
	tracker := &status.Tracker{Registry: a.internal, Store: a.store, Last: a.reconciler.Last,
		Progress: a.rollout.Progress, Watch: a.rollout.Watch}
	scope := api.ScopeNode
	if a.peers != nil {
		tracker.Nodes, scope = a.peers, api.ScopeMesh
	}
	a.draining = proxydrain.New(proxydrain.Options{Store: a.store, Presence: a.presence, Clients: a.rollout.StatusOf,
		Wait: tracker.Wait, Scope: scope, Log: a.log,
		Envoy: func(p *api.ProxyStatus) proxydrain.Envoy {
			return envoyadmin.Envoy{Dir: envoyDir(cfg), ID: p.NodeID, Peer: p.Peer}
		}})
}

// drainOwn drains the dataplane of a peer of the xDS server.
func (a *Agent) drainOwn(ctx context.Context, ref node.Ref, p *access.Peer,
	q *api.DrainRequest) (*api.Drain, *api.Error) {
	return a.draining.Run(ctx, ref.Key(), q, true, p.Account())
}
