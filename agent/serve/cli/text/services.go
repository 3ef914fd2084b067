package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// ServicePorts writes the ports of a service with their names and protocols.
func ServicePorts(s *api.Service) string {
	return strings.Join(Each(s.Ports, func(p api.ServicePort) string {
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}), ",")
}

// ServiceEndpoints writes ready/total, once where it is the same for all ports.
func ServiceEndpoints(s *api.Service) string {
	out := Each(s.Ports, func(p api.ServicePort) string { return fmt.Sprintf("%d/%d", p.Ready, p.Total) })
	if distinct := slices.Compact(slices.Clone(out)); len(distinct) == 1 {
		return distinct[0]
	}
	return strings.Join(out, ",")
}

// ServiceVIPs writes the virtual addresses of a service.
func ServiceVIPs(s *api.Service) string { return strings.Join(Texts(s.VIPs), ",") }

// ServiceNames writes the hostnames that a service has.
func ServiceNames(s *api.Service) string {
	var out []string
	for _, h := range s.Hostnames {
		if h.Generated {
			out = append(out, h.Hostname)
		}
	}
	return strings.Join(out, ",")
}
