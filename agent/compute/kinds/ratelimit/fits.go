package ratelimit

import (
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
)

// Fits reports whether a field applies to a protocol.
func (*Conf) Fits(path string, p mesh.Protocol) bool {
	return p.HTTP() || policy.SectionOf(path) != "http"
}

// Idle says why other fields make a field ineffective.
func (c *Conf) Idle(path string) string {
	l := toolkit.Or(c.Local, Local{})
	if path == "local.http.disabled" && toolkit.Or(l.HTTP, HTTP{}).RequestRate == nil ||
		path == "local.tcp.disabled" && toolkit.Or(l.TCP, TCP{}).ConnectionRate == nil {
		return "no other policy sets a limit that it could disable"
	}
	return ""
}
