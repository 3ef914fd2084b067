package resource

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

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
			v.Field("name").Faultf("%s is already the name of backends[%d]: each backend has its own", quote(b.Name), first)
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
		v.Field("enabledBackend").Faultf("there is no backend %s: give the name of one of the backends", quote(m.EnabledBackend))
	}
}

// Bounds of the RSA keys of authorities, in bits: below, they can be broken; above, making one takes too long.
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
		v.unset(conf.Cert != nil, "cert", "a builtin backend makes its own certificate: remove it, or set type to %s", BackendProvided)
		v.unset(conf.Key != nil, "key", "a builtin backend makes its own key: remove it, or set type to %s", BackendProvided)
		if ca := conf.CACert; ca != nil {
			v := v.Field("caCert")
			if ca.RSABits != 0 && (ca.RSABits < minRSABits || ca.RSABits > maxRSABits) {
				v.Field("RSAbits").Faultf("%d is not the size of a key: %d to %d bits are allowed; without it the key is ECDSA", ca.RSABits, minRSABits, maxRSABits)
			}
			if _, err := ca.Lifetime(); err != nil {
				v.Field("expiration").Faultf("%v", err)
			}
		}
	case BackendProvided:
		v.unset(conf.CACert != nil, "caCert", "a provided backend has cert and key: remove it, or set type to %s", BackendBuiltin)
		if conf.Cert == nil {
			v.Field("cert").Faultf("the certificate of the authority is missing: give it by file, inline or inlineString")
		}
		if conf.Key == nil {
			v.Field("key").Faultf("the key of the authority is missing: give it by file, inline or inlineString")
		}
		conf.Cert.validate(v.Field("cert"))
		conf.Key.validate(v.Field("key"))
	}
}

// Lifetime returns the time that the certificate of the authority is valid, 0 when it is not given.
func (c *BuiltinCA) Lifetime() (time.Duration, error) {
	if c == nil {
		return 0, nil
	}
	return lifetime(c.Expiration)
}

// Lifetime returns the time that certificates of proxies are valid, 0 when it is not given.
func (r *Rotation) Lifetime() (time.Duration, error) {
	if r == nil {
		return 0, nil
	}
	return lifetime(r.Expiration)
}

// lifetime reads a time span. Beside the units of Go it knows y (365 days), w and d, as Kuma does.
func lifetime(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	fail := func() (time.Duration, error) {
		return 0, fmt.Errorf(`%s is not a duration above 0: write numbers with units y, w, d, h, m or s, for example "1d" or "12h"`, quote(s))
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
