package loadbalancing

import (
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Types of load balancers.
const (
	roundRobin   = "RoundRobin"
	leastRequest = "LeastRequest"
	ringHash     = "RingHash"
	random       = "Random"
	maglev       = "Maglev"
)

// Types of hash policies. SourceIP is the old name of Connection.
const (
	hashHeader      = "Header"
	hashCookie      = "Cookie"
	hashConnection  = "Connection"
	hashSourceIP    = "SourceIP"
	hashQuery       = "QueryParameter"
	hashFilterState = "FilterState"
)

// Types of failover rules, by the zones to which they fail over.
const (
	zonesNone      = "None"
	zonesOnly      = "Only"
	zonesAny       = "Any"
	zonesAnyExcept = "AnyExcept"
)

// Conf is the conf of a MeshLoadBalancingStrategy.
type Conf struct {
	LocalityAwareness *LocalityAwareness `json:"localityAwareness,omitempty"`
	LoadBalancer      *LoadBalancer      `json:"loadBalancer,omitempty"`
	// HashPolicies are the attributes by which requests are hashed. Those of ringHash and maglev are
	// the deprecated form.
	HashPolicies *[]HashPolicy `json:"hashPolicies,omitempty"`
}

// Fits reports whether a field applies to a protocol.
func (c *Conf) Fits(path string, p mesh.Protocol) bool {
	hash := path == "hashPolicies" || strings.HasSuffix(path, ".hashPolicies")
	return !hash || p.HTTP() || len(newHashing(c).connections) > 0
}

// Idle says why other fields make a field ineffective.
func (c *Conf) Idle(path string) string {
	switch l := c.LocalityAwareness; {
	case path == "localityAwareness.disabled" && l != nil && (l.LocalZone != nil || l.CrossZone != nil):
		return "localZone and crossZone take precedence over it"
	case c.HashPolicies != nil && strings.HasSuffix(path, ".hashPolicies"):
		return "hashPolicies beside loadBalancer takes precedence over it"
	case c.HashPolicies != nil && path == "hashPolicies" && c.LoadBalancer != nil && !c.LoadBalancer.hashes():
		return "loadBalancer." + c.LoadBalancer.Type + " does not use hashes: use RingHash or Maglev"
	}
	return ""
}

// LocalityAwareness defines which endpoints are preferred by location.
type LocalityAwareness struct {
	Disabled  *bool      `json:"disabled,omitempty"` // prefer no endpoints, unless another field is set
	LocalZone *LocalZone `json:"localZone,omitempty"`
	CrossZone *CrossZone `json:"crossZone,omitempty"`
}

// LocalZone distributes the traffic among the endpoints of the proxy's zone.
type LocalZone struct {
	AffinityTags *[]AffinityTag `json:"affinityTags,omitempty"`
}

// AffinityTag prefers endpoints with the same value of a tag as the proxy.
type AffinityTag struct {
	Key    string  `json:"key"`
	Weight *uint32 `json:"weight,omitempty"` // Default 90 % of the remaining traffic
}

// CrossZone defines the fallback zones when endpoints of the proxy's zone fail.
type CrossZone struct {
	Failover          *[]Failover        `json:"failover,omitempty"`
	FailoverThreshold *FailoverThreshold `json:"failoverThreshold,omitempty"`
}

// Failover is one rule. Rules apply in order.
type Failover struct {
	From *FromZones `json:"from,omitempty"` // zones of the proxies. Default all
	To   ToZones    `json:"to"`
}

// FromZones are the zones of proxies.
type FromZones struct {
	Zones []string `json:"zones"`
}

// ToZones are the fallback zones.
type ToZones struct {
	Type  string    `json:"type"`
	Zones *[]string `json:"zones,omitempty"`
}

// FailoverThreshold is the percentage of healthy endpoints below which traffic moves to the next
// priority.
type FailoverThreshold struct {
	Percentage *resource.Decimal `json:"percentage,omitempty"` // above 0 and up to 100. Default 50
}

// LoadBalancer is the algorithm that selects an endpoint. The field for Type holds its parameters.
type LoadBalancer struct {
	Type         string        `json:"type"`
	RoundRobin   *struct{}     `json:"roundRobin,omitempty"`
	LeastRequest *LeastRequest `json:"leastRequest,omitempty"`
	RingHash     *RingHash     `json:"ringHash,omitempty"`
	Random       *struct{}     `json:"random,omitempty"`
	Maglev       *Maglev       `json:"maglev,omitempty"`
}

// hashes reports whether the algorithm selects endpoints by the hash of a request.
func (l *LoadBalancer) hashes() bool { return l.Type == ringHash || l.Type == maglev }

// LeastRequest selects the endpoint with the fewest active requests among some random ones.
type LeastRequest struct {
	ChoiceCount       *uint32           `json:"choiceCount,omitempty"`       // Default 2
	ActiveRequestBias *resource.Decimal `json:"activeRequestBias,omitempty"` // at least 0. Default 1
}

// RingHash is Ketama consistent hashing. Sizes are in entries.
type RingHash struct {
	HashFunction *string       `json:"hashFunction,omitempty" check:"XXHash|MurmurHash2"` // Default XXHash
	MinRingSize  *uint32       `json:"minRingSize,omitempty"`                             // Default 1024
	MaxRingSize  *uint32       `json:"maxRingSize,omitempty"`                             // Default 8388608
	HashPolicies *[]HashPolicy `json:"hashPolicies,omitempty"`
}

// Maglev is consistent hashing with a table of prime size.
type Maglev struct {
	TableSize    *uint32       `json:"tableSize,omitempty"` // Default 65537
	HashPolicies *[]HashPolicy `json:"hashPolicies,omitempty"`
}

// HashPolicy is an attribute by which requests are hashed. A terminal policy ends the evaluation if
// a hash exists.
type HashPolicy struct {
	Type           string          `json:"type"`
	Terminal       *bool           `json:"terminal,omitempty"`
	Header         *Header         `json:"header,omitempty"`
	Cookie         *Cookie         `json:"cookie,omitempty"`
	Connection     *Connection     `json:"connection,omitempty"`
	QueryParameter *QueryParameter `json:"queryParameter,omitempty"`
	FilterState    *FilterState    `json:"filterState,omitempty"`
}

// Header hashes by a request header.
type Header struct {
	Name string `json:"name"`
}

// Cookie hashes by a cookie. If TTL is set, the proxy creates a missing cookie.
type Cookie struct {
	Name string             `json:"name"`
	TTL  *resource.Duration `json:"ttl,omitempty"` // 0s for a session cookie
	Path *string            `json:"path,omitempty"`
}

// Connection hashes by the address of the client.
type Connection struct {
	SourceIP *bool `json:"sourceIP,omitempty"`
}

// QueryParameter hashes by a query parameter, whose name is case-sensitive.
type QueryParameter struct {
	Name string `json:"name"`
}

// FilterState hashes by an object that a filter stored in the request's filter state.
type FilterState struct {
	Key string `json:"key"`
}
