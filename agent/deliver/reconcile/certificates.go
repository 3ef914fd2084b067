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

// IdentityDir is where authorities and certificates are kept, below paths.state.
const IdentityDir = "identity"

// beginCertificates brings the authorities of all meshes with mTLS up to the present.
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
			p.problem(key, api.SeverityWarning, "proxies get certificates in some seconds: "+err.Error())
		} else if err != nil {
			p.problem(key, api.SeverityError, "no certificates can be made, proxies keep those that they have: "+err.Error())
		}
		for _, w := range warnings {
			p.problem(key, api.SeverityWarning, w)
		}
	}
}

// secrets returns what a proxy proves itself with; nil when its mesh has no mTLS, or has no such
// dataplane.
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

// endCertificates forgets the certificates of dataplanes that are gone, and notes when the next
// pass is due.
func (p *pass) endCertificates(meshes map[string]*generate.Mesh) {
	p.r.renewAt = p.r.o.Certificates.End(func(mesh, dataplane string) bool {
		m := meshes[mesh]
		return m != nil && (m.View.Dataplane(dataplane) != nil || p.atBorder(dataplane))
	})
}

var certificatesDesc = prometheus.NewDesc("nearside_certificate_expiration_timestamp_seconds",
	"Time at which certificates of a mesh end: of the authority that signs, and the first of the connected proxies'.",
	[]string{"mesh", "certificate"}, nil)

// certificates says when certificates end, whenever metrics are read.
type certificates struct{ keeper *identity.Keeper }

func (c certificates) Describe(ch chan<- *prometheus.Desc) { ch <- certificatesDesc }

func (c certificates) Collect(ch chan<- prometheus.Metric) {
	for _, e := range c.keeper.Expiries() {
		ch <- prometheus.MustNewConstMetric(certificatesDesc, prometheus.GaugeValue, float64(e.Until.Unix()), e.Mesh, e.What)
	}
}

// Issued returns the certificate that a proxy was given, and whether it has one.
func (r *Reconciler) Issued(mesh, name string) (identity.Issued, bool) {
	return r.o.Certificates.Issued(mesh, name)
}
