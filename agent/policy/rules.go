package policy

import (
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Rules is what all policies say about one proxy.
type Rules struct {
	Warnings []mesh.Warning // references that lead nowhere, and the like; each names the policy

	kinds  map[string]*KindRules
	legacy []legacyKind
	index  *Index
}

// Kind returns the rules of a kind; nil, on which every method is well defined, when no policy of it selects the proxy.
func (r *Rules) Kind(kind string) *KindRules {
	if r == nil {
		return nil
	}
	return r.kinds[kind]
}

// KindRules is what the policies of one kind say about one proxy.
type KindRules struct {
	Kind string
	// Policies are those that select the proxy, each stronger than the ones before.
	Policies []*resource.Resource
	// Proxy is about the proxy as a whole, for kinds with spec.default; nil for none.
	Proxy *Rule
	// To is about destinations that are kuma.io/service tags, the most specific first: the first rule whose subset
	// holds a destination decides.
	To []*Rule
	// ToResources is about destinations that are resources: service resources, routes, and the mesh for all that have no
	// rule of their own. Sorted by kind, name and section.
	ToResources []*ResourceRule
	// From is about clients, for each inbound that some policy selects, sorted by index.
	From []InboundRules
	// Warnings are those of this kind.
	Warnings []mesh.Warning

	byService  map[string]*Rule
	byResource map[resourceID]*ResourceRule
}

// Rule is one merged conf.
type Rule struct {
	Subset  Subset // whom it is about; empty for all
	Conf    resource.Conf
	Origins []Origin // what was merged, each over the ones before
}

// Origin is an item of a policy.
type Origin struct {
	Policy *resource.Resource
	Item   int // index in from or to; 0 for default
}

// ResourceRule is a rule about one resource.
type ResourceRule struct {
	Rule
	Resource resource.Key      // kind Mesh for all destinations
	Section  string            // port of a service resource by name or number, "" for all
	Labels   map[string]string // of the resource
}

// InboundRules are the rules about the clients of one inbound.
type InboundRules struct {
	Inbound int // index in networking.inbound
	// Rules are disjoint: at most one holds a client. The one with the most tags comes first.
	Rules []*Rule
	// Routes are rules about requests of a route alone, of policies that target one and have from.
	Routes []RouteRules
	// Overflow is true when there were too many combinations of tags and weaker policies were left out: a kind that
	// guards something must then refuse what no rule admits.
	Overflow bool

	items []item
}

// RouteRules are rules about the requests of one route.
type RouteRules struct {
	Route *resource.Resource
	Rules []*Rule
}

// Subset is a group of proxies or services by their tags.
type Subset []Tag

// Tag is one condition: the tag has the value, or with Not it does not.
type Tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Not   bool   `json:"not"`
}

type resourceID struct {
	key     resource.Key
	section string
}
