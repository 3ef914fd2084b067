package explaindns

import (
	"net/netip"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/compute/names"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Verdicts about a name.
const (
	DNSResolves  = "resolves"  // by the agent itself
	DNSForwarded = "forwarded" // others are asked
	DNSNone      = "nxdomain"  // there is no such name
	DNSEmpty     = "nodata"    // the name is there, without addresses
	DNSFails     = "servfail"  // there is no mesh yet
)

// DNS says why a name resolves as it does.
type DNS struct {
	Name    string    `json:"name"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Client  DNSClient `json:"client"`
	Steps   []DNSStep `json:"steps"` // the names that the client asks for, in order; never null
}

// DNSClient is who asks.
type DNSClient struct {
	Dataplane *api.Ref `json:"dataplane,omitempty"`
	Address   string   `json:"address,omitempty"` // by which the resolver knows it
	// it is told all names, not only those of services that the dataplane reaches
	All      bool     `json:"all"`
	Families []string `json:"families"` // of the addresses that it is told
	Note     string   `json:"note,omitempty"`
	Search   []string `json:"search"`
	Ndots    int      `json:"ndots"`
}

// DNSStep is one name that the client asks for.
type DNSStep struct {
	Name    string       `json:"name"`
	Outcome string       `json:"outcome"` // a verdict
	Reason  string       `json:"reason"`
	Suffix  string       `json:"suffix,omitempty"` // owned, that the name is below
	Records []DNSRecord  `json:"records"`
	Owner   *api.DNSName `json:"owner,omitempty"` // who has the name
	// whether the dataplane reaches it there; absent without dataplane or owner
	Reachable *explain.Why `json:"reachable,omitempty"`
}

// DNSRecord is a record of an answer.
type DNSRecord struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

func shownKind(kind string) string {
	if kind == mesh.KindTag {
		return api.KindServiceTag
	}
	return kind
}

// NameKey names the resource whose permissions hold for a name: that of its service. That of a tag
// counts as a MeshService of its name.
func NameKey(n *names.Name) resource.Key { return serviceKey(n.Kind, n.Mesh, n.Service()) }

func serviceKey(kind, in, name string) resource.Key {
	if kind == mesh.KindTag {
		kind = mesh.KindMeshService
	}
	return resource.Key{Kind: kind, Mesh: in, Name: name}
}

// DNSNameOf returns a name with the claims of services that are visible; nil for all.
func DNSNameOf(n *names.Name, claims *names.Claims, visible func(resource.Key) bool) api.DNSName {
	out := api.DNSName{Name: n.Name, Mesh: n.Mesh, Kind: shownKind(n.Kind), Service: n.Service(),
		Addresses: append([]netip.Addr{}, n.Addrs...), Ports: []api.DNSPort{},
		Zone: n.Zone, Origin: string(n.Origin), Generator: n.Generator.Name}
	for _, p := range n.Ports {
		out.Ports = append(out.Ports, api.DNSPort{Name: p.Name, Port: p.Number})
	}
	for _, c := range claims.Of(n) {
		if visible != nil && !visible(serviceKey(c.Kind, c.Mesh, c.Service)) {
			out.Contested = append(out.Contested, api.DNSClaim{Why: "you may not look into the service"})
			continue
		}
		out.Contested = append(out.Contested, api.DNSClaim{Mesh: c.Mesh, Kind: shownKind(c.Kind), Service: c.Service,
			Origin: string(c.Origin), Generator: c.Generator.Name, Why: c.Why})
	}
	return out
}
