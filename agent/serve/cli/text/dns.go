package text

import (
	"fmt"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// Claimant names a service that wants a name.
func Claimant(c api.DNSClaim) string {
	if c.Service == "" {
		return "another service"
	}
	return c.Mesh + "/" + c.Kind + "/" + c.Service
}

// DNSPorts writes the ports of a name.
func DNSPorts(n *api.DNSName) string {
	var out []string
	for _, p := range n.Ports {
		out = append(out, fmt.Sprint(p.Port))
	}
	return strings.Join(out, ",")
}

// DNSOrigin says by what a service has a name.
func DNSOrigin(origin, generator string) string {
	switch origin {
	case "generator":
		return "HostnameGenerator/" + generator
	case "virtual":
		return "VirtualOutbound/" + generator
	case "status":
		return "status"
	}
	return "kuma.io/service"
}
