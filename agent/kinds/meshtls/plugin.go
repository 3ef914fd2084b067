// Package meshtls is the plugin of MeshTLS: which versions of TLS and which ciphers the proxies of a mesh speak with each
// other, and whether an inbound also takes connections without a certificate of the mesh.
//
// It edits what the generator makes of mTLS and makes none itself: without mTLS it has no effect.
package meshtls

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshTLS"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshtlses", "mtls", resource.PolicyShape{
			Top:     []string{"Mesh", "MeshSubset", "Dataplane"},
			From:    []string{"Mesh"},
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   check,
		})},
		Apply: apply,
	}
}

// check refuses versions and ciphers in a policy on a part of the mesh: both ends of a connection have to agree on
// them.
func check(p *resource.Policy, v *resource.Validator) {
	if wholeMesh(p) {
		return
	}
	for i := range p.From {
		c, ok := p.From[i].Conf.(*Conf)
		if !ok {
			continue
		}
		at := v.Field("from").Index(i).Field("default")
		if c.TLSVersion != nil {
			at.Field("tlsVersion").Faultf("proxies must agree on it, so it goes with a targetRef of kind Mesh alone: move it into a policy on the Mesh")
		}
		if len(c.TLSCiphers) > 0 {
			at.Field("tlsCiphers").Faultf("proxies must agree on them, so they go with a targetRef of kind Mesh alone: move them into a policy on the Mesh")
		}
	}
}

func wholeMesh(p *resource.Policy) bool { return p.TargetRef == nil || p.TargetRef.Kind == "Mesh" }
