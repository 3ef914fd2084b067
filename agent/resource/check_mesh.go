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
		} else if reason := nameFault(b.Name); reason != "" {
			v.Field("name").Faultf("%s", reason)
		}
		seen[b.Name] = i
		v.Field("type").OneOf(b.Type, "builtin", "provided")
		if b.Mode != "" {
			v.Field("mode").OneOf(b.Mode, "STRICT", "PERMISSIVE")
		}
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

// Lifetime returns the time that certificates of proxies are valid, 0 when it is not given. Beside the units of Go it
// knows y (365 days), w and d, as Kuma does.
func (r *Rotation) Lifetime() (time.Duration, error) {
	if r == nil || r.Expiration == "" {
		return 0, nil
	}
	fail := func() (time.Duration, error) {
		return 0, fmt.Errorf(`%s is not a duration above 0: write numbers with units y, w, d, h, m or s, for example "1d" or "12h"`, quote(r.Expiration))
	}
	const day = 24 * time.Hour
	rest := r.Expiration
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

// Validate checks the egress.
func (z *ZoneEgress) Validate(v *Validator) {
	if z.Zone != "" {
		if reason := nameFault(z.Zone); reason != "" {
			v.Field("zone").Faultf("%s", reason)
		}
	}
	v = v.Field("networking")
	v.Field("address").Host(z.Networking.Address)
	v.Field("port").Port(z.Networking.Port)
	if z.Networking.Admin != nil {
		v.Field("admin").Field("port").portOrZero(z.Networking.Admin.Port)
	}
}
