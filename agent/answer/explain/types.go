package explain

import (
	"github.com/nearside-mesh/nearside/agent/answer/effect"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// The types of effect that documents contain.
type (
	Inbound     = effect.Inbound
	Destination = effect.Destination
	Item        = effect.Item
	Place       = effect.Place
	Source      = effect.Source
	Field       = effect.Field
	List        = effect.List
)

// Effects and lists of items.
const (
	EffectAll  = api.EffectAll
	EffectPart = api.EffectPart
	EffectNone = api.EffectNone

	To      = effect.To
	From    = effect.From
	Default = effect.Default
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
	Effect    string        `json:"effect"` // one of api.Effect*
	// By are the policies that override all of this one, or set the same values.
	By []api.Ref `json:"by,omitempty"`
	// WhyNot says why a selected policy has no effect.
	WhyNot string `json:"whyNot,omitempty"`
	// Held says why the Envoy was not given what the policy changes.
	Held     string   `json:"held,omitempty"`
	Items    []Item   `json:"items"` // in document order; empty if not selected
	Warnings []string `json:"warnings"`
	// Reach is set if permissions restrict reachability. It lists the services that this policy
	// decides about and the requested services.
	Reach *Reachability `json:"reach,omitempty"`
}

func destinationOf(s *mesh.Service) Destination { return effect.DestinationOf(s) }
