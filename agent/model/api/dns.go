package api

import "net/netip"

// States of the resolver.
const (
	DNSServing = "serving"
	DNSPending = "pending" // names of the meshes fail, since there is no mesh yet
	DNSOff     = "off"
	DNSFailed  = "failed" // a socket is gone
)

// DNSStatus is how the resolver stands.
type DNSStatus struct {
	State  string   `json:"state"`
	Reason string   `json:"reason,omitempty"` // why it is not serving, or what is wrong with it, and what to do
	Listen []string `json:"listen"`           // UDP and TCP addresses
	Holder string   `json:"holder,omitempty"` // who holds the sockets while the agent is away; absent: nobody
	Names  int      `json:"names"`            // that it answers by itself, without reverse names
	// Suffixes belong to the meshes: other names below them do not exist. Unowned are those that do
	// not, though a generator ends names with them.
	Suffixes      []DNSSuffix   `json:"suffixes"`
	Unowned       []DNSSuffix   `json:"unowned,omitempty"`
	TTL           int           `json:"ttl"` // seconds
	ReachableOnly bool          `json:"reachableOnly"`
	Views         []DNSView     `json:"views"`     // addresses whose workloads are not told everything
	Upstreams     []DNSUpstream `json:"upstreams"` // in the order of the config
	Problem       string        `json:"problem,omitempty"`
	// queries to upstreams have the mark that exempts them from redirections of port 53
	Marked        bool         `json:"marked"`
	Cache         DNSCache     `json:"cache"`
	Canary        string       `json:"canary"` // a name that only agents answer, with CanaryAddress
	CanaryAddress netip.Addr   `json:"canaryAddress"`
	QueryLog      *DNSQueryLog `json:"queryLog,omitempty"` // absent for who may not look into everything
}

// DNSSuffix is a suffix of names.
type DNSSuffix struct {
	Name      string `json:"name"`
	Origin    string `json:"origin"`              // config, generator, or range for the reverse names of virtual addresses
	Generator string `json:"generator,omitempty"` // name of the first HostnameGenerator
	Reason    string `json:"reason,omitempty"`    // why it does not belong to the meshes
}

// DNSView is what the workloads behind one address are told.
type DNSView struct {
	Address    netip.Addr `json:"address"`
	Dataplanes []string   `json:"dataplanes"` // MESH/NAME
	All        bool       `json:"all"`        // names, not only those of services that are reached
	Families   []string   `json:"families"`   // IPv4, IPv6
}

// DNSUpstream is a name server that the rest is asked of.
type DNSUpstream struct {
	Address  string  `json:"address"`
	Down     bool    `json:"down"`
	RTT      float64 `json:"rttSeconds"` // smoothed; 0 while unknown
	Queries  uint64  `json:"queries"`
	Answers  uint64  `json:"answers"`
	Failures uint64  `json:"failures"` // replies with an error code
	Timeouts uint64  `json:"timeouts"`
}

// DNSCache is the answers of upstreams that are kept.
type DNSCache struct {
	Entries int    `json:"entries"`
	Bytes   int    `json:"bytes"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
}

// DNSQueryLog is the log of queries.
type DNSQueryLog struct {
	File    string `json:"file"`
	Sample  uint32 `json:"sample"` // one query of so many is logged; 0: none
	Written uint64 `json:"written"`
	Dropped uint64 `json:"dropped"`
	Problem string `json:"problem,omitempty"`
}

// DNS is GET /v1/dns?mesh=&name=: how the resolver stands, with a page of the names that it answers
// by itself, sorted.
type DNS struct {
	DNSStatus
	Total int       `json:"total"` // of all pages
	Items []DNSName `json:"items"`
	Next  *string   `json:"next"` // path and query of the next page, null on the last
}

// DNSLine is the resolver in the status.
type DNSLine struct {
	State   string            `json:"state"`
	Reason  string            `json:"reason,omitempty"`
	Listen  []string          `json:"listen"`
	Holder  string            `json:"holder,omitempty"` // who holds the sockets while the agent is away; absent: nobody
	Names   int               `json:"names"`
	Queries map[string]uint64 `json:"queries"` // by result; never null
}

// DNSName is one name of a table, with the reason for which it resolves.
type DNSName struct {
	Name      string       `json:"name"`
	Mesh      string       `json:"mesh"`
	Kind      string       `json:"kind"`    // ServiceTag, or the kind of the service
	Service   string       `json:"service"` // its name
	Addresses []netip.Addr `json:"addresses"`
	Ports     []DNSPort    `json:"ports"` // of the SRV records
	Zone      string       `json:"zone,omitempty"`
	Origin    string       `json:"origin"` // status, generator, tag
	Generator string       `json:"generator,omitempty"`
	// Contested lists who else wants the name.
	Contested []DNSClaim `json:"contested,omitempty"`
}

// DNSPort is a port of a service.
type DNSPort struct {
	Name string `json:"name,omitempty"`
	Port uint16 `json:"port"`
}

// DNSClaim is a claim to a name that another service has.
type DNSClaim struct {
	Mesh      string `json:"mesh"`
	Kind      string `json:"kind"`
	Service   string `json:"service"`
	Origin    string `json:"origin"`
	Generator string `json:"generator,omitempty"`
	Why       string `json:"why"` // it does not have the name
}
