package explain

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Rules is the response of GET /meshes/{mesh}/dataplanes/{name}/_rules: the merged rules of the
// targetRef policies that select a proxy, one entry per kind, sorted by kind. Lists are never null.
type Rules struct {
	HTTPMatches []HTTPMatch           `json:"httpMatches"` // sorted by hash
	Resource    ResourceMeta          `json:"resource"`
	Rules       []KindRules           `json:"rules"`
	Diff        []jsonpatch.Operation `json:"diff,omitzero"` // with include=diff: patch from the current rules to these
}

// HTTPMatch resolves a hash that the matcher __rule-matches-hash__ of a rule contains.
type HTTPMatch struct {
	Hash  string          `json:"hash"`
	Match json.RawMessage `json:"match"` // the matches of a MeshHTTPRoute rule
}

// ResourceMeta identifies a resource. Labels include those that the zone adds to each resource.
type ResourceMeta struct {
	Labels map[string]string `json:"labels"`
	Mesh   string            `json:"mesh"`
	Name   string            `json:"name"`
	Type   string            `json:"type"`
}

// KindRules contains the merged rules of one kind.
type KindRules struct {
	FromRules    []FromRules    `json:"fromRules"`              // for clients, by inbound
	InboundRules []InboundRules `json:"inboundRules,omitempty"` // entries of spec.rules, by inbound
	// MergedRules are the result of merging from and rules, for inbounds with rules of a kind that
	// merges them.
	MergedRules []FromRules `json:"mergedRules,omitempty"`
	ProxyRule   *ProxyRule  `json:"proxyRule,omitempty"` // for kinds with spec.default
	// ToResourceRules apply to MeshService resources and routes; Mesh represents all other
	// destinations.
	ToResourceRules []ResourceRule `json:"toResourceRules"`
	// ToRules apply to kuma.io/service values, the most specific first.
	ToRules  []TagRule `json:"toRules"`
	Type     string    `json:"type"`
	Warnings []string  `json:"warnings"`
}

// ProxyRule applies to the whole proxy.
type ProxyRule struct {
	Conf   json.RawMessage `json:"conf"`
	Origin []ResourceMeta  `json:"origin"`          // the merged policies; later ones override earlier ones
	Fields []Field         `json:"fields,omitzero"` // with include=fields
}

// TagRule applies to proxies or services by their tags.
type TagRule struct {
	Conf     json.RawMessage `json:"conf"`
	Matchers []policy.Tag    `json:"matchers"` // all must match; empty: everything matches
	Origin   []ResourceMeta  `json:"origin"`
	// Match selects clients by certificate. Clients that an earlier rule matches are excluded.
	Match  *resource.ClientMatch `json:"match,omitempty"`
	Route  *ResourceMeta         `json:"route,omitempty"` // the rule applies only to requests of this route
	Fields []Field               `json:"fields,omitzero"`
}

// ResourceRule applies to one resource.
type ResourceRule struct {
	Conf                []json.RawMessage `json:"conf"` // always one
	Origin              []ResourceOrigin  `json:"origin"`
	ResourceMeta        ResourceMeta      `json:"resourceMeta"`
	ResourceSectionName string            `json:"resourceSectionName"` // port of a service; "": all ports
	Fields              []Field           `json:"fields,omitzero"`
}

// ResourceOrigin is an item of a policy.
type ResourceOrigin struct {
	ResourceMeta ResourceMeta `json:"resourceMeta"`
	RuleIndex    int          `json:"ruleIndex"` // index in spec.to or spec.rules
}

// FromRules contains the rules for the clients of one inbound.
type FromRules struct {
	Inbound InboundID `json:"inbound"`
	Rules   []TagRule `json:"rules"`
}

// InboundRules contains the unmerged entries of spec.rules for one inbound: those for the most
// specific clients first, then in ascending precedence. They include the items of from for kinds in
// which these act as rules. For kinds that merge entries, MergedRules contains the result.
type InboundRules struct {
	Apart   bool          `json:"-"` // the kind does not merge the entries
	Inbound InboundID     `json:"inbound"`
	Rules   []InboundRule `json:"rules"`
}

// InboundRule is an entry of spec.rules.
type InboundRule struct {
	Conf   []json.RawMessage     `json:"conf"`            // always one
	Match  *resource.ClientMatch `json:"match,omitempty"` // the clients; absent for all
	Origin []ResourceOrigin      `json:"origin"`          // always one
}

// InboundID identifies an inbound of a dataplane.
type InboundID struct {
	Name string            `json:"name,omitempty"`
	Port uint32            `json:"port"`
	Tags map[string]string `json:"tags"`
}

// Policies is the response of GET /v1/dataplanes/{mesh}/{name}/policies: the policies that select a
// proxy, in the order in which the kinds are applied and, within a kind, in ascending precedence.
type Policies struct {
	Mesh  string        `json:"mesh"`
	Name  string        `json:"name"`
	Total int           `json:"total"`
	Items []PolicyBrief `json:"items"`
	// Reach says which services the dataplane reaches and why.
	Reach *Reachability `json:"reach"`
}

// PolicyBrief is a short form of [Policy]. POST /v1/explain returns the complete one.
type PolicyBrief struct {
	api.Ref
	Legacy    bool          `json:"legacy"`
	Selected  bool          `json:"selected"` // false for a legacy policy that is superseded by a targetRef policy
	Reason    string        `json:"reason"`
	Inbounds  []Inbound     `json:"inbounds"`
	Outbounds []Destination `json:"outbounds"`
	Gateway   bool          `json:"gateway"`
	Effect    string        `json:"effect"` // all, part, or none
	Warnings  []string      `json:"warnings"`
}

// Question is the body of POST /v1/explain. Exactly one field must be set.
type Question struct {
	Policy     *PolicyQuestion     `json:"policy,omitempty"`
	Connection *ConnectionQuestion `json:"connection,omitempty"`
	Request    *RequestQuestion    `json:"request,omitempty"`
	DNS        *DNSQuestion        `json:"dns,omitempty"`
}

// PolicyQuestion asks for the effect of a policy on a dataplane.
type PolicyQuestion struct {
	Type      string `json:"type"` // any name of the kind
	Mesh      string `json:"mesh"` // "" means default
	Name      string `json:"name"`
	Dataplane string `json:"dataplane"`
	// Backend is the name of a service whose reachability is explained too.
	Backend string `json:"backend,omitempty"`
}

// DNSQuestion asks why a name resolves as it does.
type DNSQuestion struct {
	Name string `json:"name"`
	Mesh string `json:"mesh,omitempty"` // of the dataplane; "" means default
	// the dataplane whose workload resolves the name; "": a client that sees all names
	Dataplane string `json:"dataplane,omitempty"`
	// Search is the list of search domains of the client; null: those of the agent's resolv.conf.
	Search []string `json:"search,omitempty"`
	Ndots  *int     `json:"ndots,omitempty"` // null: the value in the agent's resolv.conf
}

// Clients returns the rules in force for clients, by inbound: the merged ones where there are any.
func (k *KindRules) Clients() []FromRules {
	out := slices.Clone(k.MergedRules)
	for _, f := range k.FromRules {
		if !slices.ContainsFunc(out, func(m FromRules) bool { return m.Inbound.Port == f.Inbound.Port }) {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b FromRules) int { return cmp.Compare(a.Inbound.Port, b.Inbound.Port) })
	return out
}
