package resource

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/base/strict"
)

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

// AnnotationHTTPProbes lists ports of inbounds, each with the path that the agent requests from the
// workload, such as "8080/healthz, 9090/ready".
const AnnotationHTTPProbes = "nearside.io/http-probes"

// Defaults and bounds of probes. The defaults are those of Kuma.
const (
	probeInterval    = time.Second
	probeTimeout     = 2 * time.Second
	minProbeInterval = 100 * time.Millisecond
	maxProbeTimeout  = time.Minute
	maxProbePath     = 1024
)

// Probe says how the agent probes the workload of an inbound.
type Probe struct {
	Port               uint32         // of the inbound
	Workload           netip.AddrPort // as the proxy of the inbound reaches it
	Redirected         bool           // traffic to the workload is redirected to the proxy
	Path               string         // of an HTTP request; "": only a TCP connection
	Interval, Timeout  time.Duration
	Healthy, Unhealthy uint32 // number of equal results in a row that change the state
}

// ProbesOf returns the probes of a Dataplane, by inbound.
func ProbesOf(r *Resource) []Probe {
	dp, ok := r.Spec.(*Dataplane)
	if !ok {
		return nil
	}
	var out []Probe
	n := &dp.Networking
	for i := range n.Inbound {
		in := &n.Inbound[i]
		if in.ServiceProbe == nil || in.State == InboundIgnored {
			continue
		}
		addr, err := netip.ParseAddr(cmp.Or(in.ServiceAddress, in.Address, n.Address))
		if err != nil {
			continue // the inbound has no listener either
		}
		p := Probe{Port: in.Port, Redirected: n.TransparentProxying != nil,
			Workload: netip.AddrPortFrom(addr.Unmap(), uint16(cmp.Or(in.ServicePort, in.Port))),
			Interval: probeInterval, Timeout: probeTimeout, Healthy: 1, Unhealthy: 1}
		in.ServiceProbe.into(&p)
		out = append(out, p)
	}
	return out
}

// into sets the fields of a probe that p sets.
func (p *ServiceProbe) into(out *Probe) {
	if p.HTTP != nil {
		out.Path = p.HTTP.Path
	}
	if p.Interval != nil {
		out.Interval = max(p.Interval.Duration, minProbeInterval)
	}
	if p.Timeout != nil {
		out.Timeout = min(p.Timeout.Duration, maxProbeTimeout)
	}
	if p.HealthyThreshold != nil {
		out.Healthy = max(*p.HealthyThreshold, 1)
	}
	if p.UnhealthyThreshold != nil {
		out.Unhealthy = max(*p.UnhealthyThreshold, 1)
	}
}

// parseHTTPProbes parses the value of [AnnotationHTTPProbes] to the path of each port. fault is ""
// if the value is valid.
func parseHTTPProbes(text string) (paths map[uint32]string, fault string) {
	if text == "" {
		return nil, ""
	}
	paths = map[uint32]string{}
	for item := range strings.SplitSeq(text, ",") {
		port, path, found := strings.Cut(strings.TrimSpace(item), "/")
		n, err := strconv.ParseUint(port, 10, 16)
		path = "/" + path
		switch {
		case !found || err != nil || n == 0:
			return nil, strict.Quote(item) + " is not PORT/PATH: write the port of an inbound and a path, such as 8080/healthz"
		case pathFault(path) != "":
			return nil, pathFault(path)
		}
		paths[uint32(n)] = path
	}
	return paths, ""
}

// pathFault returns why a path cannot be requested, or "".
func pathFault(path string) string {
	switch {
	case !strings.HasPrefix(path, "/"):
		return strict.Quote(path) + " is not a path: it must begin with /"
	case len(path) > maxProbePath:
		return fmt.Sprintf("the path has %d bytes, at most %d are allowed", len(path), maxProbePath)
	case strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }):
		return strict.Quote(path) + " is not a path: only printable ASCII characters without spaces and # are allowed"
	}
	return ""
}

// setHTTPProbes adds the HTTP probes of annotations. An existing field takes precedence.
func (d *Dataplane) setHTTPProbes(paths map[uint32]string) {
	d.Networking.Inbound = slices.Clone(d.Networking.Inbound)
	for i := range d.Networking.Inbound {
		in := &d.Networking.Inbound[i]
		path, found := paths[in.Port]
		if !found || in.ServiceProbe != nil && in.ServiceProbe.HTTP != nil {
			continue
		}
		p := ServiceProbe{}
		if in.ServiceProbe != nil {
			p = *in.ServiceProbe
		}
		p.HTTP = &HTTPProbe{Path: path}
		in.ServiceProbe = &p
	}
}
