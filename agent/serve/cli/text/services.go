package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// ServicePorts returns the ports of a service with their protocols.
func ServicePorts(s *api.Service) string {
	return strings.Join(Each(s.Ports, func(p api.ServicePort) string {
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}), ",")
}

// ServiceEndpoints returns ready/total per port, or once if it is the same for all ports.
func ServiceEndpoints(s *api.Service) string {
	out := Each(s.Ports, func(p api.ServicePort) string { return fmt.Sprintf("%d/%d", p.Ready, p.Total) })
	if distinct := slices.Compact(slices.Clone(out)); len(distinct) == 1 {
		return distinct[0]
	}
	return strings.Join(out, ",")
}

// ServiceVIPs returns the virtual addresses of a service.
func ServiceVIPs(s *api.Service) string { return strings.Join(Texts(s.VIPs), ",") }

// ServiceNames returns the generated hostnames of a service.
func ServiceNames(s *api.Service) string {
	var out []string
	for _, h := range s.Hostnames {
		if h.Generated {
			out = append(out, h.Hostname)
		}
	}
	return strings.Join(out, ",")
}

func Services(w io.Writer, list []api.Service, wide bool) {
	headers := []string{"MESH", "KIND", "NAME", "PORTS", "ENDPOINTS", "VIPS", "HOSTNAMES"}
	if wide {
		headers = append(headers, "CLUSTERS", "LABELS")
	}
	t := NewTable(w, headers...)
	for _, s := range list {
		kind := s.Kind
		if s.Derived {
			kind += " (derived)"
		}
		cells := []string{s.Mesh, kind, s.Name, ServicePorts(&s), ServiceEndpoints(&s), ServiceVIPs(&s),
			ServiceNames(&s)}
		if wide {
			clusters := Each(s.Ports, func(p api.ServicePort) string { return p.Cluster })
			cells = append(cells, strings.Join(clusters, ","), Pairs(s.Labels))
		}
		t.Row(cells...)
	}
	t.Flush()
	serviceReasons(w, list)
}

// serviceReasons writes missing hostnames, ports, and endpoints, with reasons.
func serviceReasons(w io.Writer, list []api.Service) {
	first := true
	say := func(s *api.Service, content string) {
		if first {
			Println(w)
			first = false
		}
		Printf(w, "%s/%s/%s: %s\n", s.Kind, s.Mesh, s.Name, OneLine(content))
	}
	for i := range list {
		s := &list[i]
		for _, r := range s.Reasons {
			say(s, r)
		}
		for _, h := range s.Hostnames {
			// already among the reasons
			if h.Generated || h.Reason == mesh.HostnameCollision && len(s.Reasons) > 0 {
				continue
			}
			what := "no hostname"
			if h.Hostname != "" {
				what = "not the hostname " + h.Hostname
			}
			if h.Generator != "" {
				what += " by " + h.Generator
			}
			say(s, what+": "+h.Message)
		}
	}
}
