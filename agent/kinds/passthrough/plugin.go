// Package passthrough is the plugin of MeshPassthrough: which connections that belong to no service of the mesh may leave
// through the proxy.
//
// The matches of all policies that select a proxy become one set of rules for each address family: written alike, each
// once, with every policy that asks for it. From them the filter chains are made so that a connection is let through
// when some rule admits it, whatever other rules there are. Envoy alone does not give that: it takes the most specific
// port, then the most specific address, and never goes back. So what holds for all ports is repeated on each port that
// some rule names, and what holds for wider addresses is repeated on the narrower ones within (the closure).
//
// What a rule admits:
//   - tls with an address: TLS connections to it; with a domain: TLS connections to any address that name the domain
//     (RFC 6066, server_name).
//   - tcp: connections that begin with anything but TLS, once the client has sent its first bytes.
//   - mysql, for it and every other protocol in which the server speaks first: anything, at once. On its port nothing is
//     inspected, so matches of that port that need to know what the client says are shadowed, and reported.
//   - http, http2, grpc: requests of HTTP/1.1 and of HTTP/2 without TLS; with a domain those whose Host names it.
//
// An exact domain on a given port is pinned: the proxy resolves it and connects to what it resolves to, so an allowed
// name with a foreign address leads to the allowed name. Wildcards, and domains on all ports, go where the workload
// dialled; the policy is told.
//
// Of two policies that contradict each other the one that is merged first, which is the weaker one, stays: policies have
// no age here that all nodes agree on, and what is in force must not depend on who came last. Both are told.
package passthrough

import (
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const kind = "MeshPassthrough"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshpassthroughs", "mp", resource.PolicyShape{
			Top:     []string{kindMesh, kindSubset, kindDataplane},
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Outside:  outside,
		Suggest:  suggest,
		Apply:    apply,
		Exits:    exits,
		InForce:  inForce,
		NoEffect: noEffect,
	}
}
