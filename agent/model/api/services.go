package api

import "net/netip"

// KindServiceTag stands for services that are values of kuma.io/service and no resources.
const KindServiceTag = "ServiceTag"

// Services is a page of GET /v1/services, sorted by mesh, kind and name.
type Services struct {
	Total int       `json:"total"` // of all pages
	Items []Service `json:"items"`
	Next  *string   `json:"next"` // path and query of the next page, null on the last
}

// Service is one service of a mesh as this node sees it: what its resource says, and what was
// computed beside it. Nothing of that is ever stored.
type Service struct {
	Kind string `json:"kind"` // KindServiceTag, or the kind of the resource
	Mesh string `json:"mesh"`
	Name string `json:"name"` // of the resource, or the tag
	// a MeshService that is made of a tag; it is in no list of resources
	Derived   bool              `json:"derived,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"` // with those that all resources have
	VIPs      []netip.Addr      `json:"vips"`             // at which proxies listen for it
	Hostnames []ServiceHostname `json:"hostnames"`        // that it has, and that it was to have
	Ports     []ServicePort     `json:"ports"`
	Reasons   []string          `json:"reasons"` // what is not as it is written, and what to do
}

// ServiceHostname is one name that a service was to have.
type ServiceHostname struct {
	Hostname  string `json:"hostname"`            // "" when a template gives none
	Origin    string `json:"origin"`              // status, generator, tag
	Generator string `json:"generator,omitempty"` // name of the HostnameGenerator
	Generated bool   `json:"generated"`           // the service has the name
	Reason    string `json:"reason"`              // Generated, Collision, TemplateError, InvalidName, LimitReached
	Message   string `json:"message,omitempty"`   // why it does not, and what to do
}

// ServicePort is one port of a service.
type ServicePort struct {
	Port     uint32   `json:"port"` // at the virtual addresses
	Name     string   `json:"name,omitempty"`
	Protocol string   `json:"protocol"`
	Cluster  string   `json:"cluster"` // as proxies have it
	Ready    int      `json:"ready"`   // endpoints that take traffic
	Total    int      `json:"total"`   // all endpoints
	Zones    []string `json:"zones"`   // of the endpoints that take traffic, sorted
	TLS      string   `json:"tls,omitempty"`
	Identity []string `json:"identities,omitempty"` // SPIFFE IDs of the endpoints, with mTLS
}

// Hostnames is GET /meshes/{mesh}/{plural}/{name}/_hostnames, in the form of the reference: the
// names that a service has, sorted, and the zones in which they lead to it.
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
