package status

import (
	"context"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/deliver/drains"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/model/store"
)

// Tracker reports the state of resources on proxies, and the state of proxies. It is safe for
// concurrent use. Optional fields are nil in an agent without xDS clients or without a pool.
type Tracker struct {
	Registry *resource.Registry
	Store    *store.Store
	Last     func() *Result // result of the last reconciliation, or nil
	// Proxies returns all xDS clients that are or recently were connected; ProxiesOf those of one
	// proxy.
	Proxies   func() []api.ProxyStatus
	ProxiesOf func(node.Ref) []api.ProxyStatus
	// Progress returns the progress of the clients. Watch returns a channel that signals changes of
	// it.
	Progress func() []rollout.Progress
	Watch    func() (changed <-chan struct{}, stop func())
	// Drains knows how the clients drain; nil: Envoy's defaults.
	Drains *drains.Drains
	Nodes  Nodes
	// Certificate returns the certificate issued to a proxy, if there is one.
	Certificate func(mesh, name string) (identity.Issued, bool)
	Info        api.Info
	Parts       Parts

	unconnected unconnected
	targets     targets
	effects     effects
}

// Parts are the other parts of an agent that a status describes. Nil: the agent has none.
type Parts struct {
	Ready   func() []api.Check                // checks of /readyz
	Host    func(context.Context) []api.Check // other checks, which may take a second
	Files   func() []api.FileStatus
	Memory  func() api.MemoryStatus
	Refused func() api.Refusals
	Holders func() map[string]int // [api.Status].Holders
	Logs    Logs
	DNSLine func() *api.DNSLine
	// Counts returns the counters of each connected Envoy by node ID. It may take seconds.
	Counts func() map[string]api.ProxyCounts
}

// Logs is the account of access logs. *account.Account implements it.
type Logs interface {
	Streams() []api.LogStream // sorted by kind and name
	// Proxies returns the accounts of proxies, given their configs, and the counters of their Envoys
	// by node ID.
	Proxies(published map[node.Key]*draft.Sealed, counts map[string]api.ProxyCounts) []api.ProxyLog
	Gaps() []api.LogGap              // listeners without a logger
	Unrecorded() api.ListenerTraffic // [api.LogLines].Unlogged
	Problems() []api.Problem         // losses of lines
}

// Nodes provides access to the gossip pool.
type Nodes interface {
	// Members returns the nodes, sorted by name.
	Members() []api.Member
	// Ask sends a question to a node. Its [Tracker.Answer] answers it.
	Ask(ctx context.Context, id string, question []byte) ([]byte, error)
}

const (
	kindMesh      = "Mesh"
	kindDataplane = "Dataplane"
)
