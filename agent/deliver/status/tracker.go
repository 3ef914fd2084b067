package status

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Tracker returns how far resources are in force on proxies, and in which state proxies are. It is
// safe for concurrent use. Fields that may be nil stand for an agent without xDS clients, or
// without a pool.
type Tracker struct {
	Registry *resource.Registry
	Store    *store.Store
	Last     func() *Result // the result of the last reconciliation, nil before the first
	// Proxies returns the xDS clients, connected or recently so, and ProxiesOf those of one proxy.
	Proxies   func() []api.ProxyStatus
	ProxiesOf func(node.Ref) []api.ProxyStatus
	// Progress returns how far these are, and Watch a channel that signals changes of it.
	Progress func() []rollout.Progress
	Watch    func() (changed <-chan struct{}, stop func())
	Nodes    Nodes
	// Certificate returns the certificate that a proxy was given, and whether it has one.
	Certificate func(mesh, name string) (identity.Issued, bool)
	Info        api.Info

	unconnected unconnected
}

// Nodes are the nodes of the gossip pool.
type Nodes interface {
	// Members returns the nodes, sorted by name.
	Members() []api.Member
	// Ask sends a question to the node with an id, whose [Tracker.Answer] answers it.
	Ask(ctx context.Context, id string, question []byte) ([]byte, error)
}

const (
	kindMesh      = "Mesh"
	kindDataplane = "Dataplane"
)
