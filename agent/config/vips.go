package config

import (
	"net/netip"
	"time"

	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// Options returns the options that views are made with.
func (c *VIPs) Options() mesh.VIPOptions {
	ranges := func(texts []string) (out mesh.VIPRange) {
		for _, s := range texts {
			if p, err := netip.ParsePrefix(s); err == nil && p.Addr().Is4() {
				out.V4 = p
			} else if err == nil {
				out.V6 = p
			}
		}
		return out
	}
	return mesh.VIPOptions{
		Ranges: mesh.VIPRanges{
			Tag: ranges(c.Tag), MeshService: ranges(c.MeshService),
			MeshExternalService: ranges(c.MeshExternalService), MeshMultiZoneService: ranges(c.MeshMultiZoneService),
		},
		IPv6: c.Families == resource.IPFamilyDualStack, Hold: time.Duration(c.ReleaseAfter) * time.Second,
	}
}
