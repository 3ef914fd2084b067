package effect

import (
	"encoding/json"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Values of [Place.On]: to what the rule of an item applies.
const (
	OnProxy     = "proxy"     // the whole proxy
	OnInbound   = "inbound"   // inbound connections and requests
	OnOutbounds = "outbounds" // outbound connections and requests
	OnRoute     = "route"     // outbound requests of one route
	OnOutside   = "outside"   // outbound connections to destinations without an outbound
)

// Inbound is a port of the workload.
type Inbound struct {
	Port uint32 `json:"port"`
	Name string `json:"name,omitempty"`
}

// Destination is a service that the workload can call. Kind is empty for a kuma.io/service value.
type Destination struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
	Port uint32 `json:"port,omitempty"` // of a service resource
}

// DestinationOf returns a service as a destination.
func DestinationOf(s *mesh.Service) Destination {
	if s.ID.Kind == mesh.KindTag {
		return Destination{Name: s.ID.Name}
	}
	return Destination{Kind: s.ID.Kind, Name: s.Resource.Name, Port: s.Port}
}

// String returns the service name, or KIND/NAME:PORT.
func (d Destination) String() string {
	if d.Kind == "" {
		return d.Name
	}
	return fmt.Sprintf("%s/%s:%d", d.Kind, d.Name, d.Port)
}

// Item is an entry of from, to, or rules, spec.default, or the conf of a legacy policy.
type Item struct {
	Field     string              `json:"field"` // path of its conf in the document, such as "spec.to[0].default"
	TargetRef *resource.TargetRef `json:"targetRef,omitempty"`
	About     string              `json:"about,omitempty"` // the targetRef as text
	Effect    string              `json:"effect"`          // one of api.Effect*
	// Reason says why nothing of the item is in force, if the places do not show it.
	Reason string  `json:"reason,omitempty"`
	Places []Place `json:"places"`
}

// Place is a rule that the item is part of. Outbounds of one rule where the fields have different
// effects are different places.
type Place struct {
	On        string        `json:"on"`                  // one of On*
	Inbound   *Inbound      `json:"inbound,omitempty"`   // for OnInbound
	Outbounds []Destination `json:"outbounds,omitempty"` // for OnOutbounds, and for OnRoute if known
	// Route is the name or hash of the route, for OnRoute and for rules of OnInbound that apply to
	// one route.
	Route    string                `json:"route,omitempty"`
	Matchers []policy.Tag          `json:"matchers,omitempty"` // for OnInbound: tags of the clients; none: all clients
	Match    *resource.ClientMatch `json:"match,omitempty"`    // for OnInbound: clients by certificate
	Effect   string                `json:"effect"`             // one of api.Effect*
	Fields   []Set                 `json:"fields"`             // fields that the item sets, in document order
}

// Set is a field that an item sets.
type Set struct {
	Path  string          `json:"path"` // path in the conf, such as "http.requestTimeout"; "" for a conf without fields
	Value json.RawMessage `json:"value"`
	// Effect is one of api.Effect*. EffectPart means that some entries of a list are in force.
	Effect string `json:"effect"`
	// By are the sources that override the field, set the same value, or that a list was merged with.
	By     []Source `json:"by"`
	Reason string   `json:"reason,omitempty"` // why it has no effect, unless By overrides it
}
