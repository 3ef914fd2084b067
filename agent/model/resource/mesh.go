package resource

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

// Mesh is one mesh and its defaults.
type Mesh struct {
	MTLS         *MTLS           `json:"mtls,omitempty"`
	Networking   *MeshNetworking `json:"networking,omitempty"`
	Routing      *Routing        `json:"routing,omitempty"`
	MeshServices *MeshServices   `json:"meshServices,omitempty"`
	// accepted; nearside creates none
	SkipCreatingInitialPolicies []string `json:"skipCreatingInitialPolicies,omitempty"`
	Logging                     *Logging `json:"logging,omitempty"`
	Metrics                     *Raw     `json:"metrics,omitempty"` // accepted without effect
	Tracing                     *Tracing `json:"tracing,omitempty"`
	Constraints                 *Raw     `json:"constraints,omitempty"` // accepted without effect
}

// MTLS enables mutual TLS.
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
	RootChain *RootChain `json:"rootChain,omitempty"` // accepted without effect
	Conf      *MTLSConf  `json:"conf,omitempty"`
}

// Types and modes of backends.
const (
	BackendBuiltin  = "builtin"  // the agent creates the authority
	BackendProvided = "provided" // certificate and key are configured
	ModeStrict      = "STRICT"
	ModePermissive  = "PERMISSIVE"
)

// Permissive reports whether proxies accept plain text besides mutual TLS.
func (b *MTLSBackend) Permissive() bool { return b.Mode == ModePermissive }

// MTLSConf is the conf of a backend: CACert of a builtin one, Cert and Key of a provided one.
type MTLSConf struct {
	CACert *BuiltinCA  `json:"caCert,omitempty"`
	Cert   *DataSource `json:"cert,omitempty"`
	Key    *KeySource  `json:"key,omitempty"`
}

// BuiltinCA configures the certificate of an authority that the agent creates.
type BuiltinCA struct {
	RSABits    uint32 `json:"RSAbits,omitempty"`    // 0: an ECDSA key
	Expiration string `json:"expiration,omitempty"` // like Rotation.Expiration
}

// RootChain configures requests for the authority's certificates.
type RootChain struct {
	RequestTimeout *Duration `json:"requestTimeout,omitempty"`
}

// DPCert configures the certificates of proxies.
type DPCert struct {
	Rotation       *Rotation `json:"rotation,omitempty"`
	RequestTimeout *Duration `json:"requestTimeout,omitempty"`
}

// Rotation configures the rotation of proxy certificates.
type Rotation struct {
	Expiration string `json:"expiration,omitempty"` // Kuma's form, also "1d"
}

// MeshNetworking holds defaults for traffic that leaves the mesh.
type MeshNetworking struct {
	Outbound *MeshOutbound `json:"outbound,omitempty"`
}

// MeshOutbound controls access to unknown destinations. A nil Passthrough means true.
type MeshOutbound struct {
	Passthrough *bool `json:"passthrough,omitempty"`
}

// Routing configures the traffic between zones.
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

// MeshServices controls how far MeshService resources replace kuma.io/service tags. An empty Mode
// means Disabled.
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

// ServicesMode returns the mode of service resources, or its default.
func (m *Mesh) ServicesMode() string {
	if m.MeshServices == nil || m.MeshServices.Mode == "" {
		return MeshServicesDisabled
	}
	return m.MeshServices.Mode
}

// Validate checks the mesh.
func (m *Mesh) Validate(v *Validator) {
	if m.MTLS != nil {
		m.MTLS.validate(v.Field("mtls"))
	}
	if m.MeshServices != nil && m.MeshServices.Mode != "" {
		v.Field("meshServices").Field("mode").OneOf(m.MeshServices.Mode,
			MeshServicesDisabled, MeshServicesEverywhere, MeshServicesReachableBackends, MeshServicesExclusive)
	}
	if m.Logging != nil {
		m.Logging.validate(v.Field("logging"))
	}
	if m.Tracing != nil {
		m.Tracing.validate(v.Field("tracing"))
	}
	for i, s := range m.SkipCreatingInitialPolicies {
		if s == "" {
			v.Field("skipCreatingInitialPolicies").Index(i).Faultf("the kind of policy is empty: give a kind or *")
		}
	}
}

func (m *MTLS) validate(v *Validator) {
	seen := make(map[string]int, len(m.Backends))
	for i := range m.Backends {
		b, v := &m.Backends[i], v.Field("backends").Index(i)
		if first, ok := seen[b.Name]; ok {
			v.Field("name").Faultf("%s is already the name of backends[%d]: backend names must be unique",
				strict.Quote(b.Name), first)
		} else {
			v.Field("name").name(b.Name)
		}
		seen[b.Name] = i
		v.Field("type").OneOf(b.Type, BackendBuiltin, BackendProvided)
		v.Field("mode").optional(b.Mode, ModeStrict, ModePermissive)
		b.validateConf(v.Field("conf"))
		if b.DPCert != nil && b.DPCert.Rotation != nil && b.DPCert.Rotation.Expiration != "" {
			if _, err := b.DPCert.Rotation.Lifetime(); err != nil {
				v.Field("dpCert").Field("rotation").Field("expiration").Faultf("%v", err)
			}
		}
	}
	if _, ok := seen[m.EnabledBackend]; m.EnabledBackend != "" && !ok {
		v.Field("enabledBackend").Faultf("backend %s does not exist: give the name of one of the backends",
			strict.Quote(m.EnabledBackend))
	}
}

// Limits of the authorities' RSA keys, in bits. Shorter keys can be broken; longer keys take too
// long to generate.
const (
	minRSABits = 2048
	maxRSABits = 4096
)

func (b *MTLSBackend) validateConf(v *Validator) {
	conf := b.Conf
	if conf == nil {
		conf = &MTLSConf{}
	}
	switch b.Type {
	case BackendBuiltin:
		v.unset(conf.Cert != nil, "cert", "a builtin backend generates its certificate: remove it, or set type to %s",
			BackendProvided)
		v.unset(conf.Key != nil, "key", "a builtin backend generates its key: remove it, or set type to %s", BackendProvided)
		if ca := conf.CACert; ca != nil {
			v := v.Field("caCert")
			if ca.RSABits != 0 && (ca.RSABits < minRSABits || ca.RSABits > maxRSABits) {
				v.Field("RSAbits").Faultf("%d is not a valid key size: %d to %d bits are allowed; without a size the key is ECDSA",
					ca.RSABits, minRSABits, maxRSABits)
			}
			if _, err := ca.Lifetime(); err != nil {
				v.Field("expiration").Faultf("%v", err)
			}
		}
	case BackendProvided:
		v.unset(conf.CACert != nil, "caCert", "a provided backend has cert and key: remove it, or set type to %s",
			BackendBuiltin)
		if conf.Cert == nil {
			v.Field("cert").Faultf("the certificate of the authority is missing: give it by file, inline or inlineString")
		}
		if conf.Key == nil {
			v.Field("key").Faultf("the key of the authority is missing: give it by file, inline or inlineString")
		}
		conf.Cert.validate(v.Field("cert"))
		conf.Key.Source().validate(v.Field("key"))
	}
}

// Lifetime returns the validity of the authority's certificate, 0 if unset.
func (c *BuiltinCA) Lifetime() (time.Duration, error) {
	if c == nil {
		return 0, nil
	}
	return lifetime(c.Expiration)
}

// Lifetime returns the validity of proxy certificates, 0 if unset.
func (r *Rotation) Lifetime() (time.Duration, error) {
	if r == nil {
		return 0, nil
	}
	return lifetime(r.Expiration)
}

// lifetime parses a duration. Besides Go's units it accepts y (365 days), w, and d, like Kuma.
func lifetime(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	fail := func() (time.Duration, error) {
		return 0, fmt.Errorf(
			`%s is not a duration above 0: write numbers with units y, w, d, h, m or s, for example "1d" or "12h"`,
			strict.Quote(s))
	}
	const day = 24 * time.Hour
	rest := s
	var sum time.Duration
	for _, u := range []struct {
		unit string
		span time.Duration
	}{{"y", 365 * day}, {"w", 7 * day}, {"d", day}} {
		number, after, ok := strings.Cut(rest, u.unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/u.span) || time.Duration(n)*u.span > math.MaxInt64-sum {
			return fail()
		}
		sum += time.Duration(n) * u.span
		rest = after
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || d > math.MaxInt64-sum {
			return fail()
		}
		sum += d
	}
	if sum <= 0 {
		return fail()
	}
	return sum, nil
}
