// Package meshtls is the plugin of MeshTLS: which versions of TLS and which ciphers the proxies of a mesh speak with each
// other, and whether an inbound also takes connections without a certificate of the mesh.
//
// It edits what the generator makes of mTLS and makes none itself: without mTLS it has no effect.
package meshtls

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/match"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
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
		Shapes: []match.Level{match.LevelTransportSocket},
		Apply:  apply,
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

// apply sets the mode of each inbound, and the versions and ciphers on both sides of the proxy.
func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if rules == nil {
		return
	}
	if c.View.Spec.MTLSEnabled() == nil {
		if c.Last {
			toolkit.WarnPolicies(c, rules.Policies, "mesh %s has no mTLS, so the policy has no effect: enable mtls of the Mesh", c.View.Name)
		}
		return
	}
	conf, owners := ofMesh(c, rules)
	if p := conf.clientParams(); p != nil {
		for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
			if !cl.Service.External {
				s, err := withParams(cl.Message.TransportSocket, &tlsv3.UpstreamTlsContext{}, p)
				if err != nil {
					toolkit.WarnPolicies(c, owners, "cluster %s keeps its TLS: %v", cl.Message.Name, err)
				}
				cl.Message.TransportSocket = s
			}
		}
	}
	p := conf.params()
	for l := range toolkit.Listeners(d, draft.Inbound) {
		if own := toolkit.Conf[Conf](rules.InboundAll(l.Inbound)); own != nil && own.Mode != nil {
			if err := setMode(l, *own.Mode); err != nil {
				toolkit.WarnPolicies(c, rules.Policies, "listener %s keeps its mode: %v", l.Message.Name, err)
			}
		}
		for _, ch := range l.Chains {
			if p == nil || !ch.TLS || ch.Message == nil {
				continue
			}
			s, err := withParams(ch.Message.TransportSocket, &tlsv3.DownstreamTlsContext{}, p)
			if err != nil {
				toolkit.WarnPolicies(c, owners, "listener %s keeps its TLS: %v", l.Message.Name, err)
			}
			ch.Message.TransportSocket = s
		}
	}
}

// ofMesh merges what the policies on the whole mesh say, which alone have versions and ciphers: so they hold for a
// proxy without inbounds too. It is never nil.
func ofMesh(c *policy.Context, rules *policy.KindRules) (*Conf, []*resource.Resource) {
	var confs []resource.Conf
	var owners []*resource.Resource
	for _, p := range rules.Policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok || !wholeMesh(spec) {
			continue
		}
		owners = append(owners, p)
		for i := range spec.From {
			if spec.From[i].Conf != nil {
				confs = append(confs, spec.From[i].Conf)
			}
		}
	}
	merged, ok := resource.Merge(confs...).(*Conf)
	if !ok {
		return &Conf{}, owners
	}
	if v := merged.TLSVersion; v.contradicts() {
		toolkit.WarnPolicies(c, owners, "the policies on the mesh together allow TLS from %s to %s, which is no version: both bounds are left out", *v.Min, *v.Max)
		left := *merged
		left.TLSVersion = nil
		merged = &left
	}
	return merged, owners
}
