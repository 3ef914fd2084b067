package api

import "net/netip"

// KindServiceTag stands for services that are values of kuma.io/service and have no resource.
const KindServiceTag = "ServiceTag"

// Services is a page of GET /v1/services, sorted by mesh, kind, and name.
type Services struct {
	Total int       `json:"total"` // of all pages
	Items []Service `json:"items"`
	Next  *string   `json:"next"` // path and query of the next page, null on the last
}

// Service is one service of a mesh as this node sees it: its resource and computed fields, which
// are never stored.
type Service struct {
	Kind string `json:"kind"` // KindServiceTag, or the kind of the resource
	Mesh string `json:"mesh"`
	Name string `json:"name"` // of the resource, or the tag
	// a MeshService derived from a tag; it is in no list of resources
	Derived   bool              `json:"derived,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // including those of all resources
	VIPs      []netip.Addr      `json:"vips"`             // at which proxies listen for it
	Hostnames []ServiceHostname `json:"hostnames"`        // generated and missing ones
	Ports     []ServicePort     `json:"ports"`
	Reasons   []string          `json:"reasons"` // what is missing, and the remedy
}

// ServiceHostname is a generated or missing hostname of a service.
type ServiceHostname struct {
	Hostname  string `json:"hostname"`            // "" if a template yields none
	Origin    string `json:"origin"`              // status, generator, tag
	Generator string `json:"generator,omitempty"` // name of the HostnameGenerator
	Generated bool   `json:"generated"`           // the service has the name
	// Generated, Collision, TemplateError, InvalidName, LimitReached
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"` // why it is missing, and the remedy
}

// ServicePort is one port of a service.
type ServicePort struct {
	Port     uint32   `json:"port"` // at the virtual addresses
	Name     string   `json:"name,omitempty"`
	Protocol string   `json:"protocol"`
	Cluster  string   `json:"cluster"` // in the config of proxies
	Ready    int      `json:"ready"`   // endpoints that receive traffic
	Total    int      `json:"total"`   // all endpoints
	Zones    []string `json:"zones"`   // of the endpoints that receive traffic, sorted
	TLS      string   `json:"tls,omitempty"`
	Identity []string `json:"identities,omitempty"` // SPIFFE IDs of the endpoints, with mTLS
}

// Hostnames is GET /meshes/{mesh}/{plural}/{name}/_hostnames, in the form of Kuma: the hostnames of
// a service, sorted, and the zones in which they lead to it.
type Hostnames struct {
	Total int            `json:"total"`
	Items []HostnameItem `json:"items"`
}

// HostnameItem is one name.
type HostnameItem struct {
	Hostname string         `json:"hostname"`
	Zones    []HostnameZone `json:"zones"`
}

// HostnameZone names a zone.
type HostnameZone struct {
	Name string `json:"name"`
}
