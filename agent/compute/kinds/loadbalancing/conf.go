package loadbalancing

import "github.com/nearside-mesh/nearside/agent/model/resource"

// Types of load balancers.
const (
	roundRobin   = "RoundRobin"
	leastRequest = "LeastRequest"
	ringHash     = "RingHash"
	random       = "Random"
	maglev       = "Maglev"
)

// Types of hash policies. sourceIP is the older spelling of connection.
const (
	hashHeader      = "Header"
	hashCookie      = "Cookie"
	hashConnection  = "Connection"
	hashSourceIP    = "SourceIP"
	hashQuery       = "QueryParameter"
	hashFilterState = "FilterState"
)

// Types of failover rules: which zones take over.
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
}

// LocalityAwareness says which endpoints are preferred by where they are.
type LocalityAwareness struct {
	Disabled  *bool      `json:"disabled,omitempty"` // true: all endpoints are equal, unless one of the others is given
	LocalZone *LocalZone `json:"localZone,omitempty"`
	CrossZone *CrossZone `json:"crossZone,omitempty"`
}

// LocalZone shares the traffic out among the endpoints of the proxy's zone.
type LocalZone struct {
	AffinityTags *[]AffinityTag `json:"affinityTags,omitempty"`
}

// AffinityTag prefers endpoints that have the value of a tag in common with the proxy.
type AffinityTag struct {
	Key    string  `json:"key"`
	Weight *uint32 `json:"weight,omitempty"` // nil: 90 % of what the tags before it leave
}

// CrossZone says which other zones take over when endpoints of the proxy's zone fail.
type CrossZone struct {
	Failover          *[]Failover        `json:"failover,omitempty"`
	FailoverThreshold *FailoverThreshold `json:"failoverThreshold,omitempty"`
}

// Failover is one rule; those before it are tried first.
type Failover struct {
	From *FromZones `json:"from,omitempty"` // zones of proxies that the rule is for; nil: all
	To   ToZones    `json:"to"`
}

// FromZones are the zones of proxies.
type FromZones struct {
	Zones []string `json:"zones"`
}

// ToZones are the zones that take over.
type ToZones struct {
	Type  string    `json:"type"`
	Zones *[]string `json:"zones,omitempty"`
}

// FailoverThreshold is the share of healthy endpoints below which traffic goes to the next
// priority.
type FailoverThreshold struct {
	Percentage *resource.Decimal `json:"percentage,omitempty"` // above 0, at most 100; 50 when there is none
}

// LoadBalancer is the algorithm that chooses an endpoint. The part that belongs to Type holds its
// parameters.
type LoadBalancer struct {
	Type         string        `json:"type"`
	RoundRobin   *struct{}     `json:"roundRobin,omitempty"`
	LeastRequest *LeastRequest `json:"leastRequest,omitempty"`
	RingHash     *RingHash     `json:"ringHash,omitempty"`
	Random       *struct{}     `json:"random,omitempty"`
	Maglev       *Maglev       `json:"maglev,omitempty"`
}

// LeastRequest takes the least busy of a few endpoints.
type LeastRequest struct {
	ChoiceCount       *uint32           `json:"choiceCount,omitempty"`       // 2 when there is none
	ActiveRequestBias *resource.Decimal `json:"activeRequestBias,omitempty"` // 0 or more; 1 when there is none
}

// RingHash is ketama hashing. Sizes are in entries.
type RingHash struct {
	HashFunction *string       `json:"hashFunction,omitempty" check:"XXHash|MurmurHash2"` // XXHash when there is none
	MinRingSize  *uint32       `json:"minRingSize,omitempty"`                             // 1024 when there is none
	MaxRingSize  *uint32       `json:"maxRingSize,omitempty"`                             // 8388608 when there is none
	HashPolicies *[]HashPolicy `json:"hashPolicies,omitempty"`
}

// Maglev is hashing by a table of prime size.
type Maglev struct {
	TableSize    *uint32       `json:"tableSize,omitempty"` // 65537 when there is none
	HashPolicies *[]HashPolicy `json:"hashPolicies,omitempty"`
}

// HashPolicy is one thing that a request is hashed by. A terminal one ends the list when there is a
// hash already.
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

// Cookie hashes by a cookie. With a TTL, the proxy sets the cookie where it is missing.
type Cookie struct {
	Name string             `json:"name"`
	TTL  *resource.Duration `json:"ttl,omitempty"` // 0s: until the client forgets the session
	Path *string            `json:"path,omitempty"`
}

// Connection hashes by the address of the client.
type Connection struct {
	SourceIP *bool `json:"sourceIP,omitempty"`
}

// QueryParameter hashes by a parameter of the URL; its name is case-sensitive.
type QueryParameter struct {
	Name string `json:"name"`
}

// FilterState hashes by an object that a filter left with the request.
type FilterState struct {
	Key string `json:"key"`
}
