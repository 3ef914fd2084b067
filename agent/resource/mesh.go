package resource

// Mesh is one mesh and its defaults.
type Mesh struct {
	MTLS                        *MTLS           `json:"mtls,omitempty"`
	Networking                  *MeshNetworking `json:"networking,omitempty"`
	Routing                     *Routing        `json:"routing,omitempty"`
	MeshServices                *MeshServices   `json:"meshServices,omitempty"`
	SkipCreatingInitialPolicies []string        `json:"skipCreatingInitialPolicies,omitempty"` // accepted; nearside creates none
	Logging                     *Logging        `json:"logging,omitempty"`
	Metrics                     *Raw            `json:"metrics,omitempty"`     // accepted, not acted on
	Tracing                     *Raw            `json:"tracing,omitempty"`     // accepted, not acted on
	Constraints                 *Raw            `json:"constraints,omitempty"` // accepted, not acted on
}

// MTLS switches mutual TLS on.
type MTLS struct {
	EnabledBackend string        `json:"enabledBackend,omitempty"`
	SkipValidation bool          `json:"skipValidation,omitempty"`
	Backends       []MTLSBackend `json:"backends,omitempty"`
}

// MTLSBackend is one certificate authority.
type MTLSBackend struct {
	Name      string     `json:"name"`
	Type      string     `json:"type"`           // BackendBuiltin or BackendProvided
	Mode      string     `json:"mode,omitempty"` // "", ModeStrict or ModePermissive
	DPCert    *DPCert    `json:"dpCert,omitempty"`
	RootChain *RootChain `json:"rootChain,omitempty"` // accepted; nothing is requested
	Conf      *MTLSConf  `json:"conf,omitempty"`
}

// Types of backends, and how strict they are.
const (
	BackendBuiltin  = "builtin"  // the agent makes the authority
	BackendProvided = "provided" // its certificate and key are given
	ModeStrict      = "STRICT"
	ModePermissive  = "PERMISSIVE"
)

// Permissive reports whether proxies take plain text beside mutual TLS.
func (b *MTLSBackend) Permissive() bool { return b.Mode == ModePermissive }

// MTLSConf is the conf of a backend: CACert of a builtin one, Cert and Key of one that is provided.
type MTLSConf struct {
	CACert *BuiltinCA  `json:"caCert,omitempty"`
	Cert   *DataSource `json:"cert,omitempty"`
	Key    *DataSource `json:"key,omitempty"`
}

// BuiltinCA is about the certificate of an authority that the agent makes.
type BuiltinCA struct {
	RSABits    uint32 `json:"RSAbits,omitempty"`    // 0: an ECDSA key
	Expiration string `json:"expiration,omitempty"` // as Rotation.Expiration
}

// RootChain is about asking for the certificates of the authority.
type RootChain struct {
	RequestTimeout *Duration `json:"requestTimeout,omitempty"`
}

// DPCert is about the certificates of proxies.
type DPCert struct {
	Rotation       *Rotation `json:"rotation,omitempty"`
	RequestTimeout *Duration `json:"requestTimeout,omitempty"`
}

// Rotation of proxy certificates.
type Rotation struct {
	Expiration string `json:"expiration,omitempty"` // Kuma's form, also "1d"
}

// MeshNetworking holds defaults of traffic that leaves the mesh.
type MeshNetworking struct {
	Outbound *MeshOutbound `json:"outbound,omitempty"`
}

// MeshOutbound says whether unknown destinations may be reached. Passthrough nil means true.
type MeshOutbound struct {
	Passthrough *bool `json:"passthrough,omitempty"`
}

// Routing between zones.
type Routing struct {
	LocalityAwareLoadBalancing             bool `json:"localityAwareLoadBalancing,omitempty"`
	ZoneEgress                             bool `json:"zoneEgress,omitempty"`
	DefaultForbidMeshExternalServiceAccess bool `json:"defaultForbidMeshExternalServiceAccess,omitempty"`
}

// Modes of service resources.
const (
	MeshServicesDisabled          = "Disabled"
	MeshServicesEverywhere        = "Everywhere"
	MeshServicesReachableBackends = "ReachableBackends"
	MeshServicesExclusive         = "Exclusive"
)

// MeshServices says how far MeshService objects replace kuma.io/service tags. An empty Mode means Disabled.
type MeshServices struct {
	Mode string `json:"mode,omitempty"`
}

// MTLSEnabled returns the enabled backend, or nil.
func (m *Mesh) MTLSEnabled() *MTLSBackend {
	if m.MTLS == nil || m.MTLS.EnabledBackend == "" {
		return nil
	}
	for i := range m.MTLS.Backends {
		if m.MTLS.Backends[i].Name == m.MTLS.EnabledBackend {
			return &m.MTLS.Backends[i]
		}
	}
	return nil
}

// Passthrough reports whether destinations outside the mesh may be reached.
func (m *Mesh) Passthrough() bool {
	if m.Networking == nil || m.Networking.Outbound == nil || m.Networking.Outbound.Passthrough == nil {
		return true
	}
	return *m.Networking.Outbound.Passthrough
}

// ServicesMode returns the mode of service resources with its default.
func (m *Mesh) ServicesMode() string {
	if m.MeshServices == nil || m.MeshServices.Mode == "" {
		return MeshServicesDisabled
	}
	return m.MeshServices.Mode
}
