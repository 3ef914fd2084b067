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
	// Switching maps each mesh that is switching mutual TLS to its current step.
	Switching map[string]string
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
