package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Flow is a connection or request on its way through one proxy, for explanations. Its Context has
// View, Proxy, Dataplane, and Rules.
type Flow struct {
	Context
	Outbound *mesh.Outbound // the outbound whose listener accepted it; nil for none
	Inbound  int            // index of the inbound whose listener accepted it, -1 for none
	// Destination is the dialed address. Host is the name that the client sends, in lower case and
	// without a port: the TLS server name, or the host of a request. Host is "" for none.
	Destination netip.AddrPort
	Host        string
	First       match.FirstBytes
	Request     *match.Request // nil for a connection
	Trace       *match.Trace
	Step        *match.Step // of the trace, the step to explain; nil for the whole flow
	// Merged lists the policy items of a kind that are merged into the rule for this flow, or the
	// legacy policies that apply to it.
	Merged func(kind string) []FieldRef
	// Owners lists the policies without which the step would have a different outcome, in the order
	// in which kinds are applied. It is empty for steps that choose neither a listener nor a
	// cluster.
	Owners func() []resource.Key
}

// DenialReason is the reason why a connection or request fails.
type DenialReason int

// Reasons for which a plugin may suggest a policy.
const (
	NotReached  DenialReason = iota // permissions exclude the service from the dataplane's reachable services
	NotAdmitted                     // an inbound does not admit the client
	NotLetOut                       // the proxy does not permit this destination outside the mesh
	NotRouted                       // no route matches the request
	// NotAdmittedOutside means that Missed, a service outside the mesh, does not admit the client.
	// The rules are those of the service, as if it were inbound 0.
	NotAdmittedOutside
)

// Denial is a connection or request that fails. Its flow is the one through the proxy that denies
// it: the server's proxy for NotAdmitted, otherwise the client's.
type Denial struct {
	*Flow
	Reason DenialReason
	Client []string      // the kuma.io/service values in the client's certificate; at least one
	Missed *mesh.Service // the service, for NotReached and NotAdmittedOutside
	// AnyAddress is true if the address is unknown; Destination is then an address that no policy
	// names.
	AnyAddress bool
}

// NewPolicy returns a policy of the mesh with a unique name based on name.
func (d *Denial) NewPolicy(kind, name string, spec *resource.Policy) *resource.Resource {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-.")
	in := MigrateInput{NameExists: func(kind, name string) bool {
		return slices.ContainsFunc(d.Rules.index.Policies(kind), func(r *resource.Resource) bool { return r.Name == name })
	}}
	return &resource.Resource{Key: resource.Key{Kind: kind, Mesh: d.View.Name,
		Name: in.FreeName(ClipName(name, MaxName), map[string]bool{}, kind)}, Spec: spec}
}
