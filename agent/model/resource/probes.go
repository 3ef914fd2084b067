package resource

import "strings"

// Probes are HTTP probes that the proxy forwards to the workload without mutual TLS. They are
// stored without effect, and the dataplane gets a warning.
type Probes struct {
	Port      uint32          `json:"port"`
	Endpoints []ProbeEndpoint `json:"endpoints,omitempty"`
}

// ProbeEndpoint is one forwarded path.
type ProbeEndpoint struct {
	InboundPort uint32 `json:"inboundPort"`
	InboundPath string `json:"inboundPath"`
	Path        string `json:"path"`
}

func (p *Probes) validate(v *Validator) {
	v.Field("port").Port(p.Port)
	for i := range p.Endpoints {
		e, at := &p.Endpoints[i], v.Field("endpoints").Index(i)
		at.Field("inboundPort").Port(e.InboundPort)
		for _, f := range [...][2]string{{"inboundPath", e.InboundPath}, {"path", e.Path}} {
			if !strings.HasPrefix(f[1], "/") {
				at.Field(f[0]).Faultf("%q is not a path: it must begin with /", f[1])
			}
		}
	}
}
