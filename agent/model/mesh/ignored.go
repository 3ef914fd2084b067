package mesh

import "github.com/nearside-mesh/nearside/agent/model/resource"

// warnIgnored warns about fields of the Mesh that are accepted without effect.
func (v *View) warnIgnored(key resource.Key, m *resource.Mesh) {
	if m.Constraints != nil {
		v.warnf(key, "constraints have no effect, so they refuse no Dataplane: restrict with xds.access of the agent's "+
			"config which Envoys may be which proxies")
	}
	if m.Metrics != nil {
		v.warnf(key, "metrics has no effect: configure the metrics of proxies with a MeshMetric")
	}
	if m.MTLS == nil {
		return
	}
	if m.MTLS.SkipValidation {
		v.warnf(key, "mtls.skipValidation has no effect, because backends are always validated: remove it")
	}
	for i := range m.MTLS.Backends {
		b := &m.MTLS.Backends[i]
		const local = "mtls.backends[%d].%s has no effect, because the agent issues certificates without requests: remove it"
		if b.RootChain != nil && b.RootChain.RequestTimeout != nil {
			v.warnf(key, local, i, "rootChain.requestTimeout")
		}
		if b.DPCert != nil && b.DPCert.RequestTimeout != nil {
			v.warnf(key, local, i, "dpCert.requestTimeout")
		}
	}
}
