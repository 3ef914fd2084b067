package explain

import (
	"encoding/json"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Effects: how much of a policy, an item, or a field is in effect.
const (
	EffectAll  = api.EffectAll
	EffectPart = api.EffectPart
	EffectNone = api.EffectNone
)

// Values of [Place.On]: to what the rule of an item applies.
const (
	OnProxy     = "proxy"     // the whole proxy
	OnInbound   = "inbound"   // inbound connections and requests
	OnOutbounds = "outbounds" // outbound connections and requests
	OnRoute     = "route"     // outbound requests of one route
)

// Policy describes the effect of a policy on a dataplane. Lists are never null.
type Policy struct {
	Policy    api.Ref `json:"policy"`
	Dataplane api.Ref `json:"dataplane"`
	Legacy    bool    `json:"legacy"` // true for source-destination policies
	Shadow    bool    `json:"shadow"` // labeled kuma.io/effect: shadow
	// Selected is true if the policy selects the dataplane and is active. Reason says what selects
	// it or why it is not selected.
	Selected bool   `json:"selected"`
	Reason   string `json:"reason"`
	// Inbounds are the selected inbounds. Outbounds are the destinations that an item applies to,
	// in effect or not. Gateway is true for a delegated gateway, which has no inbounds. Route is
	// set if the policy applies only to requests of that route.
	Inbounds  []Inbound     `json:"inbounds"`
	Outbounds []Destination `json:"outbounds"`
	Gateway   bool          `json:"gateway"`
	Route     *api.Ref      `json:"route,omitempty"`
	Effect    string        `json:"effect"` // EffectAll, EffectPart, or EffectNone
	Items     []Item        `json:"items"`  // in document order; empty if not selected
	Warnings  []string      `json:"warnings"`
	// Reach is set if permissions restrict reachability. It lists the services that this policy
	// decides about and the requested services.
	Reach *Reachability `json:"reach,omitempty"`
}

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
	Effect    string              `json:"effect"`
	// Reason says why nothing of the item is in effect, if the places do not show it.
	Reason string  `json:"reason,omitempty"`
	Places []Place `json:"places"`
}

// Place is a rule that the item is part of.
type Place struct {
	On        string        `json:"on"`                  // OnProxy, OnInbound, OnOutbounds, or OnRoute
	Inbound   *Inbound      `json:"inbound,omitempty"`   // for OnInbound
	Outbounds []Destination `json:"outbounds,omitempty"` // for OnOutbounds, and for OnRoute if known
	// Route is the name or hash of the route, for OnRoute and for rules of OnInbound that apply to
	// one route.
	Route    string                `json:"route,omitempty"`
	Matchers []policy.Tag          `json:"matchers,omitempty"` // for OnInbound: tags of the clients; none: all clients
	Match    *resource.ClientMatch `json:"match,omitempty"`    // for OnInbound: clients by certificate
	Effect   string                `json:"effect"`
	Fields   []Set                 `json:"fields"` // fields that the item sets, in document order
}

// Set is a field that an item sets.
type Set struct {
	Path   string          `json:"path"` // path in the conf, such as "http.requestTimeout"; "" for a conf without fields
	Value  json.RawMessage `json:"value"`
	Effect string          `json:"effect"` // EffectPart: some entries of a list are in effect
	By     []Source        `json:"by"`     // sources that override the field or that a list was merged with
}
