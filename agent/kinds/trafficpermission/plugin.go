// Package trafficpermission is the plugin of MeshTrafficPermission, and of TrafficPermission, which it replaces: which
// clients may reach an inbound.
//
// It guards the filter chains whose peers have shown a certificate of the mesh, and no others: without one a client
// cannot be told. Such a chain admits nobody but those whom a policy admits, so a mesh with mTLS and without
// permissions is closed.
package trafficpermission

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	kind       = "MeshTrafficPermission"
	legacyKind = "TrafficPermission"
)

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	clients := []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshtrafficpermissions", "mtp", resource.PolicyShape{
			Top:     append(clients[:len(clients):len(clients)], "Dataplane"),
			From:    clients,
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Legacy: []policy.LegacyKind{{
			Descriptor: resource.LegacyDescriptor(legacyKind, "traffic-permissions", "", resource.LegacyShape{}),
			ReplacedBy: []string{kind},
			Inbound:    true,
			Migrate:    migrate,
		}},
		Admits: func(c resource.Conf) bool {
			conf, ok := c.(*Conf)
			if !ok {
				return false
			}
			d, known := conf.Action.decision()
			return known && d != deny
		},
		Apply: apply,
	}
}
