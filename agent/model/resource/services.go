package resource

import "github.com/nearside-mesh/nearside/agent/model/secret"

// ExternalService is a service outside the mesh with a kuma.io/service tag.
type ExternalService struct {
	Networking ExternalNetworking `json:"networking"`
	Tags       map[string]string  `json:"tags"`
}

// ExternalNetworking holds the address of the service.
type ExternalNetworking struct {
	Address string       `json:"address"` // host:port
	TLS     *ExternalTLS `json:"tls,omitempty"`
	// DisableHostDNSEntry leaves the host to its own name servers: workloads get its real addresses.
	DisableHostDNSEntry bool `json:"disableHostDNSEntry,omitempty"`
}

// ExternalTLS configures the TLS connection to the service.
type ExternalTLS struct {
	Enabled            bool        `json:"enabled,omitempty"`
	CACert             *DataSource `json:"caCert,omitempty"`
	ClientCert         *DataSource `json:"clientCert,omitempty"`
	ClientKey          *KeySource  `json:"clientKey,omitempty"`
	AllowRenegotiation bool        `json:"allowRenegotiation,omitempty"`
	SkipHostnameVerify bool        `json:"skipHostnameVerification,omitempty"`
	ServerName         string      `json:"serverName,omitempty"`
}

// DataSource is a source of bytes. Exactly one field is set.
type DataSource struct {
	Secret       string `json:"secret,omitempty"`
	File         string `json:"file,omitempty"`
	Inline       []byte `json:"inline,omitempty"` // base64 in the document
	InlineString string `json:"inlineString,omitempty"`
}

// KeySource is the source of a private key. Exactly one field is set. A key in the document is a
// secret; the name of a secret and the path of a file are not.
type KeySource struct {
	Secret       string       `json:"secret,omitempty"`
	File         string       `json:"file,omitempty"`
	Inline       secret.Bytes `json:"inline,omitzero"` // base64 in the document
	InlineString secret.Text  `json:"inlineString,omitzero"`
}

// Source returns the source with the key in clear text. Callers must not store or print it.
func (k *KeySource) Source() *DataSource {
	if k == nil {
		return nil
	}
	return &DataSource{Secret: k.Secret, File: k.File, Inline: k.Inline.Reveal(), InlineString: k.InlineString.Reveal()}
}

// MeshService is a service of the mesh, defined by a resource.
type MeshService struct {
	Selector   MeshServiceSelector   `json:"selector"`
	Ports      []MeshServicePort     `json:"ports,omitempty"`
	Identities []MeshServiceIdentity `json:"identities,omitempty"`
	State      string                `json:"state,omitempty"`
	Status     *ServiceStatus        `json:"-"` // VIPs and hostnames are used if set
}

// States of a MeshService: whether it has endpoints in its zone.
const (
	ServiceAvailable   = "Available"
	ServiceUnavailable = "Unavailable"
)

// MeshServiceSelector selects dataplanes by one of its fields.
type MeshServiceSelector struct {
	DataplaneTags   map[string]string  `json:"dataplaneTags,omitempty"`
	DataplaneLabels *LabelSelector     `json:"dataplaneLabels,omitempty"`
	DataplaneRef    *DataplaneSelector `json:"dataplaneRef,omitempty"`
}

// LabelSelector selects by exact label values.
type LabelSelector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// DataplaneSelector names one dataplane.
type DataplaneSelector struct {
	Name string `json:"name"`
}

// MeshServicePort is one port of a service.
type MeshServicePort struct {
	Name        string       `json:"name,omitempty"`
	Port        uint32       `json:"port"`
	TargetPort  *IntOrString `json:"targetPort,omitempty"` // inbound port number or name; nil: Port
	AppProtocol string       `json:"appProtocol,omitempty"`
}

// MeshServiceIdentity is an identity in the certificates of the service.
type MeshServiceIdentity struct {
	Type  string `json:"type"` // IdentityServiceTag or IdentitySPIFFE
	Value string `json:"value"`
}

// Types of identities.
const (
	IdentityServiceTag = "ServiceTag" // a value of kuma.io/service
	IdentitySPIFFE     = "SpiffeID"
)

// ServiceStatus is the part of the status that service resources share. Documents have it under
// status next to the spec, in both formats.
type ServiceStatus struct {
	VIPs               []VIP     `json:"vips,omitempty"`
	VIP                *VIP      `json:"vip,omitempty"` // only in MeshExternalService
	Addresses          []Address `json:"addresses,omitempty"`
	TLS                *TLSState `json:"tls,omitempty"`
	HostnameGenerators []Raw     `json:"hostnameGenerators,omitempty"`
	DataplaneProxies   *Raw      `json:"dataplaneProxies,omitempty"`
	MeshServices       []Raw     `json:"meshServices,omitempty"`
}

// TLSState tells whether all endpoints of a MeshService accept mutual TLS.
type TLSState struct {
	Status string `json:"status,omitempty"` // "", TLSReady or TLSNotReady
}

// States of TLS.
const (
	TLSReady    = "Ready"
	TLSNotReady = "NotReady"
)

// VIP is a virtual address.
type VIP struct {
	IP string `json:"ip"`
}

// Address is a hostname of a service.
type Address struct {
	Hostname             string `json:"hostname,omitempty"`
	Origin               string `json:"origin,omitempty"`
	HostnameGeneratorRef *Raw   `json:"hostnameGeneratorRef,omitempty"`
}

// MeshExternalService is a service outside the mesh, defined by a resource.
type MeshExternalService struct {
	Match     MeshExternalMatch      `json:"match"`
	Endpoints []MeshExternalEndpoint `json:"endpoints,omitempty"`
	TLS       *MeshExternalTLS       `json:"tls,omitempty"`
	Extension *Raw                   `json:"extension,omitempty"`
	Status    *ServiceStatus         `json:"-"`
}

// MeshExternalMatch is the destination that the workload connects to.
type MeshExternalMatch struct {
	Type     string `json:"type,omitempty"` // HostnameGenerator
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol,omitempty"` // tcp, http, http2, grpc
}

// MeshExternalEndpoint is one address: an IP, a host name, or unix:///path.
type MeshExternalEndpoint struct {
	Address string `json:"address"`
	Port    uint32 `json:"port,omitempty"`
	// Priority orders the endpoints: those of a higher number receive traffic only if those of lower
	// numbers are unhealthy.
	Priority uint32 `json:"priority,omitempty"`
}

// MeshExternalTLS configures the TLS connection to the endpoints.
type MeshExternalTLS struct {
	Enabled            bool                      `json:"enabled,omitempty"`
	Version            *TLSVersion               `json:"version,omitempty"`
	AllowRenegotiation bool                      `json:"allowRenegotiation,omitempty"`
	Verification       *MeshExternalVerification `json:"verification,omitempty"`
}

// TLSVersion limits the protocol version: TLSAuto, TLS10, TLS11, TLS12, TLS13.
type TLSVersion struct {
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

// MeshExternalVerification configures the verification of the server, and the client certificate.
type MeshExternalVerification struct {
	Mode            string      `json:"mode,omitempty"` // SkipSAN, SkipCA, SkipAll, Secured
	ServerName      string      `json:"serverName,omitempty"`
	SubjectAltNames []SANMatch  `json:"subjectAltNames,omitempty"`
	CACert          *DataSource `json:"caCert,omitempty"`
	ClientCert      *DataSource `json:"clientCert,omitempty"`
	ClientKey       *KeySource  `json:"clientKey,omitempty"`
}

// SANMatch is one accepted subject alternative name.
type SANMatch struct {
	Type  string `json:"type,omitempty"` // Exact or Prefix
	Value string `json:"value"`
}

// MeshMultiZoneService combines the MeshServices of several zones.
type MeshMultiZoneService struct {
	Selector MultiZoneSelector `json:"selector"`
	Ports    []MultiZonePort   `json:"ports,omitempty"`
	Status   *ServiceStatus    `json:"-"`
}

// MultiZoneSelector selects MeshServices.
type MultiZoneSelector struct {
	MeshService LabelSelector `json:"meshService"`
}

// MultiZonePort is one port of a MeshMultiZoneService.
type MultiZonePort struct {
	Name        string `json:"name,omitempty"`
	Port        uint32 `json:"port"`
	AppProtocol string `json:"appProtocol,omitempty"`
}

// HostnameGenerator assigns hostnames to services.
type HostnameGenerator struct {
	Selector  HostnameSelector `json:"selector"`
	Template  string           `json:"template,omitempty"`
	Extension *Raw             `json:"extension,omitempty"`

	// Mesh is the mesh that the document names, although generators belong to no mesh. It has no
	// effect and is not part of the resource.
	Mesh string `json:"-"`
}

// HostnameSelector selects services by one of its fields.
type HostnameSelector struct {
	MeshService          *LabelSelector `json:"meshService,omitempty"`
	MeshExternalService  *LabelSelector `json:"meshExternalService,omitempty"`
	MeshMultiZoneService *LabelSelector `json:"meshMultiZoneService,omitempty"`
}

// statusHolder is a spec of a kind with a status. The status is a field of the spec in Go, and next
// to it in documents.
type statusHolder interface{ status() **ServiceStatus }

// StatusOf returns the status of a service resource, or nil.
func StatusOf(s Spec) *ServiceStatus {
	if h, ok := s.(statusHolder); ok {
		return *h.status()
	}
	return nil
}

func (s *MeshService) status() **ServiceStatus          { return &s.Status }
func (s *MeshExternalService) status() **ServiceStatus  { return &s.Status }
func (s *MeshMultiZoneService) status() **ServiceStatus { return &s.Status }
