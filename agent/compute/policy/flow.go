package policy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Flow is a connection or request on its way through one proxy, as plugins see it when it is
// explained. Context has View, Proxy, Dataplane and Rules.
type Flow struct {
	Context
	Outbound *mesh.Outbound // whose listener took it; nil for none
	Inbound  int            // index of the inbound whose listener took it, -1 for none
	// Destination is the address that is dialled, and Host the name that the client gives, in lower
	// case and without a port: the server name of TLS, or the host of a request. "" for none.
	Destination netip.AddrPort
	Host        string
	First       match.FirstBytes
	Request     *match.Request // nil for a connection
	Trace       *match.Trace
	Step        *match.Step // of the trace, the one that is asked about; nil where all of the way is
	// Merged lists the items of the policies of a kind that are merged into the rule about what the
	// flow is about, or the legacy policies that apply to it.
	Merged func(kind string) []Written
	// Owners lists the policies without which what the step chose would be another one; empty for
	// steps that chose neither a listener nor a cluster. The order is that in which kinds act.
	Owners func() []resource.Key
}

// DenialReason says at what a connection or request fails.
type DenialReason int

// The reasons for which a plugin may suggest a policy.
const (
	NotReached  DenialReason = iota // permissions leave the service out of what the dataplane reaches
	NotAdmitted                     // an inbound does not admit the client
	NotLetOut                       // the destination is outside of the mesh, and the proxy does not let it out
	NotRouted                       // no route takes the request
	// NotAdmittedOutside is for a service outside of the mesh, Missed, that does not admit the client.
	// The rules are those about the service, as if it were inbound 0.
	NotAdmittedOutside
)

// Denial is a connection or request that fails. The flow is that through the proxy at which it
// fails: that of the server for NotAdmitted, else that of the client.
type Denial struct {
	*Flow
	Reason DenialReason
	Client []string      // the values of kuma.io/service that the client proves itself with; at least one
	Missed *mesh.Service // of NotReached and NotAdmittedOutside
	// AnyAddress is true where the address is not known, and Destination stands for one that no policy
	// names.
	AnyAddress bool
}

// NewPolicy returns a policy of the mesh with a name that no other one of its kind has, made of the
// words given.
func (d *Denial) NewPolicy(kind, name string, spec *resource.Policy) *resource.Resource {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-.")
	in := MigrateInput{Taken: func(kind, name string) bool {
		return slices.ContainsFunc(d.Rules.index.Policies(kind), func(r *resource.Resource) bool { return r.Name == name })
	}}
	return &resource.Resource{Key: resource.Key{Kind: kind, Mesh: d.View.Name,
		Name: in.FreeName(kind, name, map[string]bool{})}, Spec: spec}
}
