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

// Result is the result of one reconciliation. It is immutable.
type Result struct {
	Revision uint64                               // of the store when it began: Meshes are of that
	Meshes   map[string]*generate.Mesh            // by name
	Proxies  map[generate.ProxyID]*generate.Proxy // what was made for clients
	// Published is what was published for the clients that are connected: Proxies without what the
	// check withholds.
	Published map[node.Key]*generate.Proxy
	Behind    int       // connected proxies that it has yet to come to: what is said of them is of earlier passes
	At        time.Time // when it ended, or published this
	Took      time.Duration
	Zone      string // of the node
	SystemCA  string // see [generate.ZoneInput]
	// Problems names what was left out or not applied, sorted: faults of single proxies and policies.
	Problems []api.Problem
	// Found are those of them that the check has found on proxies.
	Found *change.Found
	// Switching says of each mesh whose mutual TLS is being switched which step it is at.
	Switching map[string]string
}

// PublishedOf returns what was published for the Envoy of a proxy, nil when it is not connected.
func (r *Result) PublishedOf(ref node.Ref) *generate.Proxy {
	return r.Published[node.Key{ID: ref.NodeID(), Flavor: node.FlavorEnvoy}]
}

// Fit reports whether the check has found nothing to withhold in what was made for a client: then
// all of it was published.
func (r *Result) Fit(key node.Key, id generate.ProxyID) bool {
	if r == nil {
		return false
	}
	made, published := r.Proxies[id], r.Published[key]
	return made != nil && published != nil && made.Sealed == published.Sealed
}

// ZoneInput is what the config of a zone proxy is made from, without secrets.
func (r *Result) ZoneInput(proxy *resource.Resource) generate.ZoneInput {
	in := generate.ZoneInput{Resource: proxy, Zone: r.Zone, Flavor: node.FlavorEnvoy, SystemCA: r.SystemCA}
	for _, name := range slices.Sorted(maps.Keys(r.Meshes)) {
		in.Meshes = append(in.Meshes, r.Meshes[name])
	}
	return in
}
