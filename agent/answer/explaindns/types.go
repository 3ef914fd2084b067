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
	DNSResolves  = "resolves"  // the agent answers
	DNSForwarded = "forwarded" // upstreams decide
	DNSNone      = "nxdomain"  // the name does not exist
	DNSEmpty     = "nodata"    // the name exists, without addresses
	DNSFails     = "servfail"  // there is no mesh yet
)

// DNS explains how a name resolves.
type DNS struct {
	Name    string    `json:"name"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Client  DNSClient `json:"client"`
	Steps   []DNSStep `json:"steps"` // queried names, in order; never null
}

// DNSClient describes the client.
type DNSClient struct {
	Dataplane *api.Ref `json:"dataplane,omitempty"`
	Address   string   `json:"address,omitempty"` // address by which the resolver identifies the client
	// whether the client sees all names, not only those of services that its dataplane reaches
	All      bool     `json:"all"`
	Families []string `json:"families"` // address families that the client gets
	Note     string   `json:"note,omitempty"`
	Search   []string `json:"search"`
	Ndots    int      `json:"ndots"`
}

// DNSStep is one queried name.
type DNSStep struct {
	Name    string      `json:"name"`
	Outcome string      `json:"outcome"` // a verdict
	Reason  string      `json:"reason"`
	Suffix  string      `json:"suffix,omitempty"` // owned suffix of the name
	Records []DNSRecord `json:"records"`
	// Upstreams are those that a forwarded query is sent to, and Domain is the domain of dns.forward
	// that selects them; "" means that no domain contains the name.
	Upstreams []api.DNSUpstream `json:"upstreams,omitempty"`
	Domain    string            `json:"domain,omitempty"`
	Owner     *api.DNSName      `json:"owner,omitempty"` // owner of the name
	// whether the dataplane reaches the owner there; absent without a dataplane or an owner
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

// NameKey returns the resource whose permissions apply to a name: its service. A tag service
// counts as the MeshService with its name.
func NameKey(n *names.Name) resource.Key { return serviceKey(n.Kind, n.Mesh, n.Service()) }

func serviceKey(kind, in, name string) resource.Key {
	if kind == mesh.KindTag {
		kind = mesh.KindMeshService
	}
	return resource.Key{Kind: kind, Mesh: in, Name: name}
}

// DNSNameOf converts a name with its competing claims. The function visible reports which
// services the user may see; nil means all.
func DNSNameOf(n *names.Name, claims *names.Claims, visible func(resource.Key) bool) api.DNSName {
	out := api.DNSName{Name: n.Name, Mesh: n.Mesh, Kind: shownKind(n.Kind), Service: n.Service(),
		Addresses: append([]netip.Addr{}, n.Addrs...), Ports: []api.DNSPort{},
		Zone: n.Zone, Origin: string(n.Origin), Generator: n.Generator.Name}
	for _, p := range n.Ports {
		out.Ports = append(out.Ports, api.DNSPort{Name: p.Name, Port: p.Number})
	}
	for _, c := range claims.Of(n) {
		if visible != nil && !visible(serviceKey(c.Kind, c.Mesh, c.Service)) {
			out.Contested = append(out.Contested, api.DNSClaim{Why: "you do not have permission to view the service"})
			continue
		}
		out.Contested = append(out.Contested, api.DNSClaim{Mesh: c.Mesh, Kind: shownKind(c.Kind), Service: c.Service,
			Origin: string(c.Origin), Generator: c.Generator.Name, Why: c.Why})
	}
	return out
}
