// Package legacy is TrafficRoute, the source-destination kind that MeshHTTPRoute and MeshTCPRoute replace, with its
// migration.
package legacy

import (
	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/kinds/route"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind       = "TrafficRoute"
	kindSubset = "MeshServiceSubset"
)

// Kind declares the kind.
func Kind() policy.LegacyKind {
	return policy.LegacyKind{
		Descriptor: resource.LegacyDescriptor(kind, "traffic-routes", "", resource.LegacyShape{
			NewConf: func() resource.Conf { return new(Conf) }, ConfRequired: true,
		}),
		SupersededBy: supersededBy,
		Migrate:      migrate, Destinations: destinations,
		Outbound: outbound,
		Apply:    apply,
	}
}

// supersededBy returns the policy that keeps a TrafficRoute from making the chain of a destination, as outbound has it.
func supersededBy(r *policy.Rules, s draft.Service, _ string) *resource.Resource {
	by := r.Kind(route.KindTCP)
	if tcp := by.Outbound(s); tcp != nil {
		return toolkit.Strongest(tcp)
	}
	if isHTTP(s.Protocol) {
		by = r.Kind(route.KindHTTP)
	}
	if by == nil || len(by.Policies) == 0 {
		return nil
	}
	return by.Policies[len(by.Policies)-1]
}

// Conf is what a TrafficRoute says about the connections to a service.
type Conf struct {
	Split        []Split           `json:"split,omitempty"`
	LoadBalancer *LoadBalancer     `json:"loadBalancer,omitempty"`
	Destination  map[string]string `json:"destination,omitempty"` // instead of split
	// HTTP is for services of HTTP: the first that takes a request decides.
	HTTP []HTTP `json:"http,omitempty"`
}

// Split is a share of the traffic, and the tags of the endpoints that get it. The value "*" stands for what the
// outbound has.
type Split struct {
	Weight      *uint32           `json:"weight,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// HTTP says what happens to the requests that its match takes.
type HTTP struct {
	Match       *Match            `json:"match,omitempty"`
	Modify      *Modify           `json:"modify,omitempty"`
	Split       []Split           `json:"split,omitempty"`
	Destination map[string]string `json:"destination,omitempty"`
}

// Match takes the requests for which all that it says is true.
type Match struct {
	Method  *String           `json:"method,omitempty"`
	Path    *String           `json:"path,omitempty"`
	Headers map[string]String `json:"headers,omitempty"`
}

// String is about a text: exactly one of its fields.
type String struct {
	Prefix *string `json:"prefix,omitempty"`
	Exact  *string `json:"exact,omitempty"`
	Regex  *string `json:"regex,omitempty"`
}

// Modify changes requests and responses.
type Modify struct {
	Path            *Path    `json:"path,omitempty"`
	Host            *Host    `json:"host,omitempty"`
	RequestHeaders  *Headers `json:"requestHeaders,omitempty"`
	ResponseHeaders *Headers `json:"responseHeaders,omitempty"`
}

// Path changes the path: the prefix that was matched, or what a pattern matches.
type Path struct {
	RewritePrefix *string `json:"rewritePrefix,omitempty"`
	Regex         *Regex  `json:"regex,omitempty"`
}

// Host changes the host: to a value, or to something out of the path.
type Host struct {
	Value    *string `json:"value,omitempty"`
	FromPath *Regex  `json:"fromPath,omitempty"`
}

// Regex puts a substitution in the place of what a pattern matches, both in the syntax of RE2.
type Regex struct {
	Pattern      string `json:"pattern"`
	Substitution string `json:"substitution"`
}

// Headers changes headers.
type Headers struct {
	Add    []Add    `json:"add,omitempty"`
	Remove []Remove `json:"remove,omitempty"`
}

// Add sets a header, or with Append adds to it.
type Add struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Append bool   `json:"append,omitempty"`
}

// Remove names a header.
type Remove struct {
	Name string `json:"name"`
}

// LoadBalancer says how requests are distributed over endpoints: at most one of its fields. Default round robin.
type LoadBalancer struct {
	RoundRobin   *struct{}     `json:"roundRobin,omitempty"`
	LeastRequest *LeastRequest `json:"leastRequest,omitempty"`
	RingHash     *RingHash     `json:"ringHash,omitempty"`
	Random       *struct{}     `json:"random,omitempty"`
	Maglev       *struct{}     `json:"maglev,omitempty"`
}

// LeastRequest takes the endpoint with the fewest requests of some that it looks at.
type LeastRequest struct {
	ChoiceCount uint32 `json:"choiceCount,omitempty"` // how many it looks at; default 2
}

// RingHash sends what has one hash to one endpoint.
type RingHash struct {
	HashFunction string `json:"hashFunction,omitempty"` // XX_HASH or MURMUR_HASH_2
	MinRingSize  uint64 `json:"minRingSize,omitempty"`  // default 1024
	MaxRingSize  uint64 `json:"maxRingSize,omitempty"`  // default 8388608
}
