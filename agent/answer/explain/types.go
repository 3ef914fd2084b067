package explain

import (
	"encoding/json"
	"fmt"

	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// How much of what a policy says is in force.
const (
	EffectAll  = "all"
	EffectPart = "part"
	EffectNone = "none"
)

// Where the items of a policy are about something of a proxy.
const (
	OnProxy     = "proxy"     // the proxy as a whole
	OnInbound   = "inbound"   // connections and requests that arrive
	OnOutbounds = "outbounds" // connections and requests that leave
	OnRoute     = "route"     // requests of one route among those that leave
)

// Policy is what a policy does on one dataplane. Lists are never null.
type Policy struct {
	Policy    api.Ref `json:"policy"`
	Dataplane api.Ref `json:"dataplane"`
	Legacy    bool    `json:"legacy"` // a source-destination policy
	Shadow    bool    `json:"shadow"` // labelled kuma.io/effect: shadow
	// Selected is true when the policy selects the dataplane and acts on it. Reason says by what, or
	// why not.
	Selected bool   `json:"selected"`
	Reason   string `json:"reason"`
	// Inbounds are those that are selected, Outbounds the destinations that something of the policy is
	// about, in force or not. Gateway is true for a delegated gateway, which has no inbounds. Route is
	// the route whose requests alone the policy is about.
	Inbounds  []Inbound     `json:"inbounds"`
	Outbounds []Destination `json:"outbounds"`
	Gateway   bool          `json:"gateway"`
	Route     *api.Ref      `json:"route,omitempty"`
	Effect    string        `json:"effect"` // EffectAll, EffectPart or EffectNone
	Items     []Item        `json:"items"`  // in the order of the document; empty when not selected
	Warnings  []string      `json:"warnings"`
	// Reach is, where permissions restrict what proxies reach, what the dataplane reaches or not by
	// this one, and the services that were asked for.
	Reach *Reachability `json:"reach,omitempty"`
}

// Inbound is a port that the workload serves.
type Inbound struct {
	Port uint32 `json:"port"`
	Name string `json:"name,omitempty"`
}

// Destination is a service that the workload can dial. Kind is empty for a value of
// kuma.io/service.
type Destination struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
	Port uint32 `json:"port,omitempty"` // of a real service
}

// String returns the service, or KIND/NAME:PORT.
func (d Destination) String() string {
	if d.Kind == "" {
		return d.Name
	}
	return fmt.Sprintf("%s/%s:%d", d.Kind, d.Name, d.Port)
}

// Item is an entry of from or to, spec.default, or the conf of a legacy policy.
type Item struct {
	Field     string              `json:"field"` // where its conf begins in the document, "spec.to[0].default"
	TargetRef *resource.TargetRef `json:"targetRef,omitempty"`
	About     string              `json:"about,omitempty"` // the targetRef in words
	Effect    string              `json:"effect"`
	// why nothing of it is in force, where the places do not say so
	Reason string  `json:"reason,omitempty"`
	Places []Place `json:"places"`
}

// Place is one rule that an item went into.
type Place struct {
	On        string        `json:"on"`                  // OnProxy, OnInbound, OnOutbounds or OnRoute
	Inbound   *Inbound      `json:"inbound,omitempty"`   // of OnInbound
	Outbounds []Destination `json:"outbounds,omitempty"` // of OnOutbounds, and OnRoute where they are known
	// of OnRoute, and OnInbound for the requests of one route: its name or hash
	Route    string                `json:"route,omitempty"`
	Matchers []policy.Tag          `json:"matchers,omitempty"` // of OnInbound: which clients; none: all
	Match    *resource.ClientMatch `json:"match,omitempty"`    // of OnInbound: which clients, by their certificates
	Effect   string                `json:"effect"`
	Fields   []Set                 `json:"fields"` // what the item sets, in the order in which it is written
}

// Set is a field that an item sets.
type Set struct {
	Path   string          `json:"path"` // in the conf, "http.requestTimeout"; "" for the whole of one without fields
	Value  json.RawMessage `json:"value"`
	Effect string          `json:"effect"` // EffectPart: some entries of a list are in force
	By     []Source        `json:"by"`     // what else its place is taken by, or a list was joined with
}
