// Package meshtls is the plugin of MeshTLS: which versions of TLS and which ciphers the proxies of
// a mesh speak with each other, and whether an inbound also takes connections without a certificate
// of the mesh.
//
// It edits what the generator makes of mTLS and makes none itself: without mTLS it has no effect.
package meshtls

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "MeshTLS"

// Plugin declares the kinds and their effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshtlses", "mtls", resource.PolicyShape{
			Top:   []string{"Mesh", "MeshSubset", "Dataplane"},
			From:  []string{"Mesh"},
			Rules: true,
			NoMatches: "versions, ciphers and the mode are settled before a client has shown a certificate, " +
				"so they cannot depend on who it is: choose the inbound by targetRef instead",
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   check,
		})},
		Shapes: []match.Level{match.LevelTransportSocket},
		Apply:  apply,
	}
}

// check refuses versions and ciphers in a policy on a part of the mesh: both ends of a connection
// have to agree on them.
func check(p *resource.Policy, v *resource.Validator) {
	if wholeMesh(p) {
		return
	}
	arriving := p.Arriving()
	for i := range arriving {
		c, ok := arriving[i].Conf.(*Conf)
		if !ok {
			continue
		}
		at := v.Field(p.ArrivingField()).Index(i).Field("default")
		if c.TLSVersion != nil {
			at.Field("tlsVersion").Faultf("proxies must agree on it, so it goes with a targetRef of kind Mesh alone: move it " +
				"into a policy on the Mesh")
		}
		if len(c.TLSCiphers) > 0 {
			at.Field("tlsCiphers").Faultf("proxies must agree on them, so they go with a targetRef of kind Mesh alone: move " +
				"them into a policy on the Mesh")
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
			toolkit.WarnPolicies(c, rules.Policies, "mesh %s has no mTLS, so the policy has no effect: enable mtls of the Mesh",
				c.View.Name)
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
		if own := toolkit.Conf[Conf](rules.InboundAll(l.Inbound)); own != nil && own.Mode != nil && !c.View.Switching {
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

// ofMesh merges what the policies on the whole mesh say, which alone have versions and ciphers: so
// they hold for a proxy without inbounds too. It is never nil.
func ofMesh(c *policy.Context, rules *policy.KindRules) (*Conf, []*resource.Resource) {
	var confs []resource.Conf
	var owners []*resource.Resource
	for _, p := range rules.Policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok || !wholeMesh(spec) {
			continue
		}
		owners = append(owners, p)
		for _, it := range spec.Arriving() {
			if it.Conf != nil {
				confs = append(confs, it.Conf)
			}
		}
	}
	merged, ok := resource.Merge(confs...).(*Conf)
	if !ok {
		return &Conf{}, owners
	}
	if v := merged.TLSVersion; v.contradicts() {
		toolkit.WarnPolicies(c, owners, "the policies on the mesh together allow TLS from %s to %s, "+
			"which is no version: both bounds are left out", *v.Min, *v.Max)
		left := *merged
		left.TLSVersion = nil
		merged = &left
	}
	return merged, owners
}

const (
	nameInspector = "envoy.filters.listener.tls_inspector"
	meshProtocol  = "kuma" // by ALPN: proxies of the mesh say it to each other
)

// Values of transport_protocol, as Envoy's inspector tells them apart.
const (
	transportTLS   = "tls"
	transportPlain = "raw_buffer"
)

// setMode makes an inbound strict or permissive. It has a chain with TLS, else it is left as it is.
func setMode(l *draft.Listener, mode string) error {
	plain := func(ch *draft.Chain) bool { return !ch.TLS }
	switch open := slices.ContainsFunc(l.Chains, plain); {
	case open == (mode == permissive) || !slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool { return ch.TLS }):
		return nil
	case open:
		l.Chains = slices.DeleteFunc(l.Chains, plain)
		for _, ch := range l.Chains {
			ch.Message.FilterChainMatch = nil
		}
		l.Message.ListenerFilters = slices.DeleteFunc(slices.Clone(l.Message.ListenerFilters),
			func(f *listenerv3.ListenerFilter) bool { return f.GetName() == nameInspector })
		l.Message.ListenerFiltersTimeout, l.Message.ContinueOnListenerFiltersTimeout = nil, false
		return nil
	}
	return unlock(l)
}

// unlock lets a strict inbound also take connections that are not of the mesh: plain ones, and
// those with a TLS of the workload's own, which is told from that of the mesh by ALPN. What they
// meet is what the mesh meets, but for the certificate.
func unlock(l *draft.Listener) error {
	inspector, err := draft.Extension{Name: nameInspector, Message: &inspectorv3.TlsInspector{}}.Pack()
	if err != nil {
		return err
	}
	var chains []*draft.Chain
	for _, ch := range l.Chains {
		for _, transport := range []string{transportPlain, transportTLS} {
			copied := ch.Clone()
			copied.TLS, copied.Message.TransportSocket = false, nil
			copied.Message.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: transport}
			chains = append(chains, copied)
		}
		ch.Message.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: transportTLS,
			ApplicationProtocols: []string{meshProtocol}}
		chains = append(chains, ch)
	}
	l.Chains = chains
	l.Message.ListenerFilters = append(slices.Clone(l.Message.ListenerFilters), &listenerv3.ListenerFilter{
		Name: nameInspector, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: inspector},
	})
	if slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool { return ch.HTTP == nil }) {
		draft.ServerMaySpeakFirst(l.Message)
	}
	return nil
}

// params are the versions and ciphers of one side of a connection; nil when nothing is asked for.
func (c *Conf) params() *tlsv3.TlsParameters {
	v := c.TLSVersion
	if v == nil {
		v = &Version{}
	}
	if len(c.TLSCiphers) == 0 && v.Min == nil && v.Max == nil {
		return nil
	}
	return &tlsv3.TlsParameters{
		CipherSuites:              c.TLSCiphers,
		TlsMinimumProtocolVersion: protocol(v.Min),
		TlsMaximumProtocolVersion: protocol(v.Max),
	}
}

// clientParams are the params of the side that connects. There Envoy goes up to TLS 1.2 by itself,
// so a maximum that is not said is TLS 1.3.
func (c *Conf) clientParams() *tlsv3.TlsParameters {
	p := c.params()
	if p != nil && p.TlsMaximumProtocolVersion == tlsv3.TlsParameters_TLS_AUTO {
		p.TlsMaximumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	return p
}

// withParams returns a transport socket with other params; itself when it is not one of TLS with an
// identity of the mesh. It never changes the socket, which may be shared.
func withParams(s *corev3.TransportSocket, ctx proto.Message, p *tlsv3.TlsParameters) (*corev3.TransportSocket, error) {
	if s.GetName() != draft.NameTLS || !s.GetTypedConfig().MessageIs(ctx) {
		return s, nil
	}
	packed, err := draft.WithTLSParams(s.GetTypedConfig(), p)
	if err != nil || packed == s.GetTypedConfig() {
		return s, err
	}
	return &corev3.TransportSocket{Name: s.Name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed}}, nil
}

// Modes of an inbound.
const (
	strict     = "Strict"     // only clients with a certificate of the mesh
	permissive = "Permissive" // others too
)

// Conf says how connections of the mesh are encrypted.
type Conf struct {
	TLSVersion *Version `json:"tlsVersion,omitempty"`
	TLSCiphers []string `json:"tlsCiphers,omitempty"`                     // of TLS 1.2 and older; TLS 1.3 has its own
	Mode       *string  `json:"mode,omitempty" check:"Strict|Permissive"` // of inbounds; without it that of the Mesh
}

// Version bounds the versions of TLS. A bound that is not given, or TLSAuto, is Envoy's.
type Version struct {
	Min *string `json:"min,omitempty"`
	Max *string `json:"max,omitempty"`
}

const auto = "TLSAuto"

// versions are the names of the versions, from old to new, at the index that Envoy has for them.
func versions() []string {
	return []string{
		tlsv3.TlsParameters_TLS_AUTO: auto,
		tlsv3.TlsParameters_TLSv1_0:  "TLS10",
		tlsv3.TlsParameters_TLSv1_1:  "TLS11",
		tlsv3.TlsParameters_TLSv1_2:  "TLS12",
		tlsv3.TlsParameters_TLSv1_3:  "TLS13",
	}
}

// ciphers are those that are strong enough for a mesh and that Envoy knows.
func ciphers() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
		"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305",
	}
}

// protocol returns Envoy's value for a bound; the automatic one for nil.
func protocol(bound *string) tlsv3.TlsParameters_TlsProtocol {
	if bound == nil {
		return tlsv3.TlsParameters_TLS_AUTO
	}
	return tlsv3.TlsParameters_TlsProtocol(max(0, slices.Index(versions(), *bound)))
}

// contradicts reports whether no version lies between the bounds.
func (v *Version) contradicts() bool {
	return v != nil && protocol(v.Min) > protocol(v.Max) && protocol(v.Max) != tlsv3.TlsParameters_TLS_AUTO
}

// Validate checks names and bounds.
func (c *Conf) Validate(v *resource.Validator) {
	if t := c.TLSVersion; t != nil {
		at := v.Field("tlsVersion")
		known := true
		if t.Min != nil {
			known = at.Field("min").OneOf(*t.Min, versions()...)
		}
		if t.Max != nil {
			known = at.Field("max").OneOf(*t.Max, versions()...) && known
		}
		if known && t.contradicts() {
			at.Field("min").Faultf("%s is newer than the maximum, %s: no version is left", *t.Min, *t.Max)
		}
	}
	seen := make(map[string]bool, len(c.TLSCiphers))
	for i, s := range c.TLSCiphers {
		at := v.Field("tlsCiphers").Index(i)
		if at.OneOf(s, ciphers()...) && seen[s] {
			at.Faultf("%s stands twice: remove it here", s)
		}
		seen[s] = true
	}
}
