package reconcile

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/identity"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// IdentityDir is the directory of authorities and certificates below paths.state.
const IdentityDir = "identity"

// beginCertificates updates the authorities of all meshes with mTLS.
func (p *pass) beginCertificates(meshes map[string]*generate.Mesh) {
	k := p.r.o.Certificates
	k.Begin()
	for name, m := range meshes {
		if m.View.Spec.MTLSEnabled() == nil {
			continue
		}
		key := resource.Key{Kind: "Mesh", Name: name}
		warnings, err := guard(p.r.o.Log, "the authorities of mesh "+name, func() ([]string, error) {
			return k.Mesh(name, m.View.Spec.MTLS)
		})
		if errors.Is(err, identity.ErrSpreading) {
			p.problem(key, api.SeverityWarning, "proxies get certificates within seconds: "+err.Error())
		} else if err != nil {
			p.problem(key, api.SeverityError, "no certificates can be issued, so proxies keep their current ones: "+err.Error())
		}
		for _, w := range warnings {
			p.problem(key, api.SeverityWarning, w)
		}
	}
}

// secrets returns the certificate of a proxy, or nil if its mesh has no mTLS or no such dataplane.
func (p *pass) secrets(in generate.Input) (*identity.Secrets, error) {
	if in.View.Spec.MTLSEnabled() == nil || in.Flavor != node.FlavorEnvoy {
		return nil, nil
	}
	r := in.View.Dataplane(in.Name)
	if r == nil {
		return nil, nil
	}
	dp, ok := r.Spec.(*resource.Dataplane)
	if !ok {
		return nil, nil
	}
	return p.r.o.Certificates.Proxy(in.View.Name, in.Name, in.View.ProxyTags(dp))
}

// endCertificates drops the certificates of deleted dataplanes of known meshes, and schedules the
// next pass.
func (p *pass) endCertificates(meshes map[string]*generate.Mesh) {
	p.r.renewAt = p.r.o.Certificates.End(func(mesh, dataplane string) bool {
		m := meshes[mesh]
		return p.kept(mesh) || m != nil && (m.View.Dataplane(dataplane) != nil || p.isZoneProxy(dataplane))
	})
}

var certificatesDesc = prometheus.NewDesc("nearside_certificate_expiration_timestamp_seconds",
	"Expiration time of a mesh's certificates: of the signing authority, and the earliest of connected proxies.",
	[]string{"mesh", "certificate"}, nil)

var lifetimesDesc = prometheus.NewDesc("nearside_certificate_lifetime_seconds",
	"Time from the issue to the expiration of these certificates.", []string{"mesh", "certificate"}, nil)

// certificates exports expiration times and lifetimes as metrics.
type certificates struct{ keeper *identity.Keeper }

func (c certificates) Describe(ch chan<- *prometheus.Desc) {
	ch <- certificatesDesc
	ch <- lifetimesDesc
}

func (c certificates) Collect(ch chan<- prometheus.Metric) {
	for _, e := range c.keeper.Expiries() {
		ch <- prometheus.MustNewConstMetric(certificatesDesc, prometheus.GaugeValue, float64(e.Until.Unix()), e.Mesh, e.What)
		ch <- prometheus.MustNewConstMetric(lifetimesDesc, prometheus.GaugeValue, e.Life.Seconds(), e.Mesh, e.What)
	}
}

// Issued returns the certificate issued to a proxy, if there is one.
func (r *Reconciler) Issued(mesh, name string) (identity.Issued, bool) {
	return r.o.Certificates.Issued(mesh, name)
}
