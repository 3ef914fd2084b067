package status

import (
	"maps"
	"slices"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Result is the result of a reconciliation. It is immutable.
type Result struct {
	Revision uint64                               // store revision of Meshes, at the start of the reconciliation
	Meshes   map[string]*generate.Mesh            // by name
	Proxies  map[generate.ProxyID]*generate.Proxy // computed for clients
	// Published holds the published configs of connected clients: Proxies without the resources that
	// the check withholds.
	Published map[node.Key]*generate.Proxy
	Behind    int       // connected proxies not processed yet; their results are from earlier passes
	At        time.Time // when it ended or published this
	Duration  time.Duration
	Zone      string // of the node
	SystemCA  string // see [generate.ZoneInput]
	// Problems lists faults of proxies and policies, sorted.
	Problems []api.Problem
	// Found holds the findings of the check on proxies.
	Found *change.Found
	// Switching holds the current steps of changes of TLS, by Mesh, and by kind and mesh for all
	// policies of a kind.
	Switching map[resource.Key]string
	// Stale holds the connected clients that keep an older config, because no new one can be
	// computed.
	Stale map[node.Key]Stale
	// Kept holds the meshes whose proxies keep their config, because the mesh could not be derived
	// since the start, with the reasons. Meshes lacks them.
	Kept map[string]string
	// LeftOut holds what the published configs lack, because a destination is not ready.
	LeftOut map[node.Key][]LeftOut
}

// NotReady is why a destination of access logs is left out that may soon be ready. The agent
// retries.
const NotReady = "it is not ready in time; retrying. Check for a disk that hangs, and the agent's log"

// Missing is why the destination of a logger is not ready.
type Missing struct {
	Reason string
	// EnvoyWrites means that the Envoy writes the file itself, without rotation, because it cannot
	// open the FIFO.
	EnvoyWrites bool
}

// LeftOut is a part of a policy that a published config lacks, because its destination is not
// ready.
type LeftOut struct {
	Policy resource.Key
	What   string // the destination: KIND TARGET
	Reason string
}

// Stale says why a client keeps an older config.
type Stale struct {
	Reason   string
	Revision uint64 // newest store revision from which no config can be computed
}

// StaleSince returns why a client keeps a config from before a revision, or "".
func (r *Result) StaleSince(key node.Key, revision uint64) string {
	if r == nil {
		return ""
	}
	if s := r.Stale[key]; s.Revision >= revision {
		return s.Reason
	}
	return ""
}

// PublishedOf returns the published config of a proxy's Envoy, or nil if it is not connected.
func (r *Result) PublishedOf(ref node.Ref) *generate.Proxy {
	return r.Published[node.Key{ID: ref.NodeID(), Flavor: node.FlavorEnvoy}]
}

// Fit reports whether the config of a client was published completely, without withheld resources.
func (r *Result) Fit(key node.Key, id generate.ProxyID) bool {
	if r == nil {
		return false
	}
	computed, published := r.Proxies[id], r.Published[key]
	return computed != nil && published != nil && computed.Sealed == published.Sealed
}

// ZoneInput returns the input for the config of a zone proxy, without secrets.
func (r *Result) ZoneInput(proxy *resource.Resource) generate.ZoneInput {
	in := generate.ZoneInput{Resource: proxy, Zone: r.Zone, Flavor: node.FlavorEnvoy, SystemCA: r.SystemCA}
	for _, name := range slices.Sorted(maps.Keys(r.Meshes)) {
		in.Meshes = append(in.Meshes, r.Meshes[name])
	}
	return in
}
