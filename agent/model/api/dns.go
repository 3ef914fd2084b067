package api

import (
	"net/netip"
	"slices"
	"strings"
)

// States of the resolver.
const (
	DNSServing = "serving"
	DNSPending = "pending" // mesh names fail, because there is no mesh yet
	DNSOff     = "off"
	DNSFailed  = "failed" // a socket failed
)

// DNSStatus is the state of the resolver.
type DNSStatus struct {
	State  string   `json:"state"`
	Reason string   `json:"reason,omitempty"` // why it is not serving, or its problem and remedy
	Listen []string `json:"listen"`           // UDP and TCP addresses
	// process that holds the sockets while the agent is down; absent: none
	Holder string `json:"holder,omitempty"`
	Names  int    `json:"names"` // in its table, without reverse names
	// Suffixes belong to the meshes: other names below them do not exist. Unowned suffixes do not,
	// although a HostnameGenerator uses them: other names below them are forwarded.
	Suffixes      []DNSSuffix   `json:"suffixes"`
	Unowned       []DNSSuffix   `json:"unowned,omitempty"`
	TTL           int           `json:"ttl"`         // seconds
	NegativeTTL   int           `json:"negativeTTL"` // seconds for which a name or a type does not exist
	ReachableOnly bool          `json:"reachableOnly"`
	Views         []DNSView     `json:"views"`     // addresses whose workloads do not see all names
	Upstreams     []DNSUpstream `json:"upstreams"` // in the order of the config
	// servers that the clients of intercepted network namespaces query, by namespace; absent: none, or
	// no permission to inspect everything
	Origins []DNSOrigin `json:"origins,omitempty"`
	Problem string      `json:"problem,omitempty"`
	// queries to upstreams have the mark that exempts them from the redirection of port 53
	Marked        bool         `json:"marked"`
	Cache         DNSCache     `json:"cache"`
	Rebind        DNSRebind    `json:"rebind"`
	Canary        string       `json:"canary"` // a name that only agents answer, with CanaryAddress
	CanaryAddress netip.Addr   `json:"canaryAddress"`
	QueryLog      *DNSQueryLog `json:"queryLog,omitempty"` // absent without permission to inspect everything
}

// DNSSuffix is a suffix of names.
type DNSSuffix struct {
	Name string `json:"name"`
	// config, generator, or range for the reverse names of virtual addresses
	Origin    string `json:"origin"`
	Generator string `json:"generator,omitempty"` // name of the first HostnameGenerator
	Reason    string `json:"reason,omitempty"`    // why it belongs to the meshes or not
}

// DNSView is the view of the workloads at one address.
type DNSView struct {
	Address    netip.Addr `json:"address"`
	Dataplanes []string   `json:"dataplanes"` // MESH/NAME
	All        bool       `json:"all"`        // all names, not only those of reachable services
	Families   []string   `json:"families"`   // IPv4, IPv6
}

// DNSUpstream is a name server for other names.
type DNSUpstream struct {
	Address string `json:"address"`
	// Domains are those of dns.forward; absent: names in none of them.
	Domains    []string `json:"domains,omitempty"`
	Protocol   string   `json:"protocol"`             // udp, tcp, or tls
	ServerName string   `json:"serverName,omitempty"` // in the certificate, if configured
	Problem    string   `json:"problem,omitempty"`    // why it cannot be queried over TLS
	Down       bool     `json:"down"`
	RTT        float64  `json:"rttSeconds"` // smoothed; 0 if unknown
	Queries    uint64   `json:"queries"`
	Answers    uint64   `json:"answers"`
	Failures   uint64   `json:"failures"` // replies with an error code
	Timeouts   uint64   `json:"timeouts"`
}

// UpstreamGroups groups upstreams by their domains, in the same order.
func UpstreamGroups(list []DNSUpstream) (out [][]DNSUpstream) {
	for _, u := range list {
		if n := len(out); n > 0 && slices.Equal(out[n-1][0].Domains, u.Domains) {
			out[n-1] = append(out[n-1], u)
			continue
		}
		out = append(out, []DNSUpstream{u})
	}
	return out
}

// UpstreamsFor returns the upstreams for a name: those of the longest domain that contains it.
func UpstreamsFor(list []DNSUpstream, name string) (out []DNSUpstream, domain string) {
	longest := -1
	name = "." + strings.Trim(strings.ToLower(name), ".")
	for _, group := range UpstreamGroups(list) {
		if len(group[0].Domains) == 0 && longest < 0 {
			out = group
		}
		for _, d := range group[0].Domains {
			suffix := "." + strings.Trim(d, ".")
			if n := len(suffix); n > longest && (d == "." || strings.HasSuffix(name, suffix)) {
				out, domain, longest = group, d, n
			}
		}
	}
	return out, domain
}

// DNSOrigin is a name server that the clients of an intercepted network namespace query.
type DNSOrigin struct {
	Netns string `json:"netns,omitempty"` // path; absent: the agent's own
	DNSUpstream
}

// DNSRebind describes which addresses are dropped from answers of upstreams. Virtual addresses
// always are.
type DNSRebind struct {
	Mode       string            `json:"mode,omitempty"`       // allow, or protect; absent: the resolver is off
	Exceptions []string          `json:"exceptions,omitempty"` // names that may have any other address
	Dropped    map[string]uint64 `json:"dropped,omitempty"`    // number of dropped addresses by reason
}

// DNSCache is the cache of upstream answers.
type DNSCache struct {
	Entries int    `json:"entries"`
	Bytes   int    `json:"bytes"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
}

// DNSQueryLog is the log of queries.
type DNSQueryLog struct {
	File    string `json:"file"`
	Sample  uint32 `json:"sample"` // one of this many queries is logged; 0: none
	Written uint64 `json:"written"`
	Dropped uint64 `json:"dropped"`
	Problem string `json:"problem,omitempty"`
}

// DNS is GET /v1/dns?mesh=&name=: the state of the resolver, with a page of the names in its table,
// sorted.
type DNS struct {
	DNSStatus
	Total int       `json:"total"` // of all pages
	Items []DNSName `json:"items"`
	Next  *string   `json:"next"` // path and query of the next page, null on the last
}

// DNSLine is the resolver in the status.
type DNSLine struct {
	State  string   `json:"state"`
	Reason string   `json:"reason,omitempty"`
	Listen []string `json:"listen"`
	// process that holds the sockets while the agent is down; absent: none
	Holder  string            `json:"holder,omitempty"`
	Names   int               `json:"names"`
	Queries map[string]uint64 `json:"queries"` // by result; never null
	// Upstreams are in the order of the config, first those for names in no domain of dns.forward.
	Upstreams []DNSUpstream `json:"upstreams"`
}

// DNSName is one name of the table, with the reason why it resolves.
type DNSName struct {
	Name      string       `json:"name"`
	Mesh      string       `json:"mesh"`
	Kind      string       `json:"kind"`    // ServiceTag, or the kind of the service
	Service   string       `json:"service"` // name of the service
	Addresses []netip.Addr `json:"addresses"`
	Ports     []DNSPort    `json:"ports"` // of the SRV records
	Zone      string       `json:"zone,omitempty"`
	Origin    string       `json:"origin"` // status, generator, tag
	Generator string       `json:"generator,omitempty"`
	// Contested lists other services that claim the name.
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
	Why       string `json:"why"` // why it does not have the name
}
