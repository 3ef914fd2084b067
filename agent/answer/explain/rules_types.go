package explain

import (
	"encoding/json"

	"github.com/nearside-mesh/nearside/agent/base/jsonpatch"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Rules is GET /meshes/{mesh}/dataplanes/{name}/_rules: what the targetRef policies say about a
// proxy, one entry for each kind of which some policy selects it, sorted by kind. Lists are never
// null.
type Rules struct {
	HTTPMatches []HTTPMatch           `json:"httpMatches"` // sorted by hash
	Resource    ResourceMeta          `json:"resource"`
	Rules       []KindRules           `json:"rules"`
	Diff        []jsonpatch.Operation `json:"diff,omitzero"` // only with include=diff: from the current rules to these
}

// HTTPMatch says what the matcher __rule-matches-hash__ of a rule stands for.
type HTTPMatch struct {
	Hash  string          `json:"hash"`
	Match json.RawMessage `json:"match"` // matches of a rule of a MeshHTTPRoute
}

// ResourceMeta names a resource. Its labels are its own and those that the zone gives to every
// resource.
type ResourceMeta struct {
	Labels map[string]string `json:"labels"`
	Mesh   string            `json:"mesh"`
	Name   string            `json:"name"`
	Type   string            `json:"type"`
}

// KindRules is what the policies of one kind say together.
type KindRules struct {
	FromRules    []FromRules    `json:"fromRules"`              // about clients, by inbound
	InboundRules []InboundRules `json:"inboundRules,omitempty"` // the entries of spec.rules, by inbound
	ProxyRule    *ProxyRule     `json:"proxyRule,omitempty"`    // of kinds with spec.default
	// about MeshService resources and routes; the Mesh stands for all others
	ToResourceRules []ResourceRule `json:"toResourceRules"`
	// about values of kuma.io/service, the most specific first
	ToRules  []TagRule `json:"toRules"`
	Type     string    `json:"type"`
	Warnings []string  `json:"warnings"`
}

// ProxyRule is about the proxy as a whole.
type ProxyRule struct {
	Conf   json.RawMessage `json:"conf"`
	Origin []ResourceMeta  `json:"origin"`          // the policies that were merged, each over the ones before
	Fields []Field         `json:"fields,omitzero"` // only with include=fields
}

// TagRule is about proxies or services by their tags.
type TagRule struct {
	Conf     json.RawMessage `json:"conf"`
	Matchers []policy.Tag    `json:"matchers"` // all of them hold; none: everything
	Origin   []ResourceMeta  `json:"origin"`
	// the clients, by their certificates, but for those of rules before
	Match  *resource.ClientMatch `json:"match,omitempty"`
	Route  *ResourceMeta         `json:"route,omitempty"` // the rule is about the requests of this route alone
	Fields []Field               `json:"fields,omitzero"`
}

// ResourceRule is about one resource.
type ResourceRule struct {
	Conf                []json.RawMessage `json:"conf"` // one
	Origin              []ResourceOrigin  `json:"origin"`
	ResourceMeta        ResourceMeta      `json:"resourceMeta"`
	ResourceSectionName string            `json:"resourceSectionName"` // port of a service, "" for all
	Fields              []Field           `json:"fields,omitzero"`
}

// ResourceOrigin is an item of a policy.
type ResourceOrigin struct {
	ResourceMeta ResourceMeta `json:"resourceMeta"`
	RuleIndex    int          `json:"ruleIndex"` // in spec.to, or in spec.rules
}

// FromRules are the rules about the clients of one inbound.
type FromRules struct {
	Inbound InboundID `json:"inbound"`
	Rules   []TagRule `json:"rules"`
}

// InboundRules are the entries of spec.rules about one inbound, as they are written, the weaker
// first. In kinds in which entries are merged the result is in FromRules.
type InboundRules struct {
	Apart   bool          `json:"-"` // they are not merged
	Inbound InboundID     `json:"inbound"`
	Rules   []InboundRule `json:"rules"`
}

// InboundRule is one entry.
type InboundRule struct {
	Conf   []json.RawMessage      `json:"conf"` // one
	Match  []resource.ClientMatch `json:"match,omitempty"`
	Origin []ResourceOrigin       `json:"origin"` // one
}

// InboundID names an inbound of a dataplane.
type InboundID struct {
	Port uint32            `json:"port"`
	Tags map[string]string `json:"tags"`
}

// Policies is GET /v1/dataplanes/{mesh}/{name}/policies: every policy that selects a proxy, in the
// order in which kinds act, of one kind the strongest last.
type Policies struct {
	Mesh  string        `json:"mesh"`
	Name  string        `json:"name"`
	Total int           `json:"total"`
	Items []PolicyBrief `json:"items"`
	// Reach says which services the dataplane reaches, and why.
	Reach *Reachability `json:"reach"`
}

// PolicyBrief is one of them. What it lacks against a [Policy] is asked for with POST /v1/explain.
type PolicyBrief struct {
	api.Ref
	Legacy    bool          `json:"legacy"`
	Selected  bool          `json:"selected"` // false for a legacy policy that a targetRef policy supersedes
	Reason    string        `json:"reason"`
	Inbounds  []Inbound     `json:"inbounds"`
	Outbounds []Destination `json:"outbounds"`
	Gateway   bool          `json:"gateway"`
	Effect    string        `json:"effect"` // all, part or none
	Warnings  []string      `json:"warnings"`
}

// Question is the body of POST /v1/explain. Exactly one member is set.
type Question struct {
	Policy     *PolicyQuestion     `json:"policy,omitempty"`
	Connection *ConnectionQuestion `json:"connection,omitempty"`
	Request    *RequestQuestion    `json:"request,omitempty"`
	DNS        *DNSQuestion        `json:"dns,omitempty"`
}

// PolicyQuestion asks what a policy does on a dataplane.
type PolicyQuestion struct {
	Type      string `json:"type"` // any name of the kind
	Mesh      string `json:"mesh"` // "" means default
	Name      string `json:"name"`
	Dataplane string `json:"dataplane"`
	// name of a service of which is to be said whether the dataplane reaches it
	Backend string `json:"backend,omitempty"`
}

// DNSQuestion asks why a name resolves as it does.
type DNSQuestion struct {
	Name      string `json:"name"`
	Mesh      string `json:"mesh,omitempty"`      // of the dataplane; "" means default
	Dataplane string `json:"dataplane,omitempty"` // whose workload asks; "": a client that sees everything
	// domains that the client appends; null: those of the agent's resolv.conf
	Search []string `json:"search,omitempty"`
	Ndots  *int     `json:"ndots,omitempty"` // null: that of the agent's resolv.conf
}
