// Package meshtls implements MeshTLS: the TLS versions and ciphers between the proxies of a mesh,
// and whether an inbound also accepts connections without a certificate of the mesh.
//
// It edits the TLS config that the generator creates, so it has no effect without mTLS.
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
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "MeshTLS"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	d := resource.PolicyDescriptor(kind, "meshtlses", "mtls", resource.PolicyShape{
		Top:   []string{"Mesh", "MeshSubset", "Dataplane"},
		From:  []string{"Mesh"},
		Rules: true, FromAsRules: true,
		NoMatches: "versions, ciphers, and the mode are negotiated before the client's certificate is known, " +
			"so they cannot depend on the client: select the inbound by targetRef instead",
		NewConf: func() resource.Conf { return new(Conf) },
		Check:   check,
	})
	d.Staged = true
	return policy.Plugin{
		Kinds:  []resource.Descriptor{d},
		Shapes: []match.Level{match.LevelTransportSocket},
		TLS:    tlsRange,
		Apply:  apply,
	}
}

// check rejects versions and ciphers unless the policy selects the whole mesh, because both ends of
// a connection must agree on them.
func check(p *resource.Policy, v *resource.Validator) {
	if wholeMesh(p) {
		return
	}
	items := p.InboundItems()
	for i := range items {
		c, ok := items[i].Conf.(*Conf)
		if !ok {
			continue
		}
		at := v.Field(p.InboundField()).Index(i).Field("default")
		if c.TLSVersion != nil {
			at.Field("tlsVersion").Faultf("tlsVersion requires a targetRef of kind Mesh, " +
				"because all proxies must agree on it: move it into a policy on the Mesh")
		}
		if len(c.TLSCiphers) > 0 {
			at.Field("tlsCiphers").Faultf("tlsCiphers requires a targetRef of kind Mesh, " +
				"because all proxies must agree on it: move it into a policy on the Mesh")
		}
	}
}

func wholeMesh(p *resource.Policy) bool { return p.TargetRef == nil || p.TargetRef.Kind == "Mesh" }

// apply sets the mode of each inbound, and the versions and ciphers of inbounds and outbounds.
func apply(c *policy.Context, d *draft.Draft) {
	rules, also := c.Rules.Kind(kind), c.View.TLS
	closePorts(c, d, rules)
	if rules == nil && also == nil {
		return
	}
	var policies []*resource.Resource
	if rules != nil {
		policies = rules.Policies
	}
	if c.View.Spec.MTLSEnabled() == nil {
		if c.Last {
			toolkit.WarnPolicies(c, policies,
				"the policy has no effect, because mesh %s has no mTLS; enable mtls of the Mesh", c.View.Name)
		}
		return
	}
	conf, owners := ofMesh(c, policies)
	client, server := conf.clientParams(), conf.params()
	if also != nil { // both sides use the union until all proxies have it
		server = params(conf.versions().Union(*also))
		client = server
	}
	if client != nil {
		for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
			if !cl.Service.External {
				s, err := withParams(cl.Message.TransportSocket, &tlsv3.UpstreamTlsContext{}, client)
				if err != nil {
					toolkit.WarnPolicies(c, owners, "TLS parameters of cluster %s cannot be set: %v", cl.Message.Name, err)
				}
				cl.Message.TransportSocket = s
			}
		}
	}
	serverFirst, _ := mesh.ServerFirst(c.Proxy()) // the generator reports the error
	for l := range toolkit.Listeners(d, draft.Inbound) {
		if inbound := toolkit.Conf[Conf](rules.InboundAll(l.Inbound)); inbound != nil && inbound.Mode != nil &&
			!c.View.Switching {
			if err := setMode(l, *inbound.Mode, slices.Contains(serverFirst, l.Port)); err != nil {
				toolkit.WarnPolicies(c, policies, "mode of listener %s cannot be set: %v", l.Message.Name, err)
			}
		}
		for _, ch := range l.Chains {
			if server == nil || !ch.TLS || ch.Message == nil {
				continue
			}
			s, err := withParams(ch.Message.TransportSocket, &tlsv3.DownstreamTlsContext{}, server)
			if err != nil {
				toolkit.WarnPolicies(c, owners, "TLS parameters of listener %s cannot be set: %v", l.Message.Name, err)
			}
			ch.Message.TransportSocket = s
		}
	}
}

// ofMesh merges the policies on the whole mesh. Only these have versions and ciphers, which also
// apply to a proxy without inbounds. The conf is never nil.
func ofMesh(c *policy.Context, policies []*resource.Resource) (*Conf, []*resource.Resource) {
	merged, owners := merge(policies)
	if v := merged.TLSVersion; v.contradicts() {
		toolkit.WarnPolicies(c, owners, "the merged policies on the mesh allow TLS from %s to %s, "+
			"which includes no version; both limits were dropped", *v.Min, *v.Max)
		return merged.unlimited(), owners
	}
	return merged, owners
}

// merge merges the policies on the whole mesh. The conf is never nil.
func merge(policies []*resource.Resource) (*Conf, []*resource.Resource) {
	var confs []resource.Conf
	var owners []*resource.Resource
	for _, p := range policies {
		spec, ok := p.Spec.(*resource.Policy)
		if !ok || !wholeMesh(spec) {
			continue
		}
		owners = append(owners, p)
		for _, it := range spec.InboundItems() {
			if it.Conf != nil {
				confs = append(confs, it.Conf)
			}
		}
	}
	if merged, ok := resource.Merge(confs...).(*Conf); ok {
		return merged, owners
	}
	return &Conf{}, owners
}

// unlimited returns the conf without limits of the version.
func (c *Conf) unlimited() *Conf {
	out := *c
	out.TLSVersion = nil
	return &out
}

// tlsRange returns the versions and ciphers that policies set for the connections between proxies.
func tlsRange(policies []*resource.Resource) mesh.TLSRange {
	merged, _ := merge(policies)
	if merged.TLSVersion.contradicts() {
		merged = merged.unlimited()
	}
	return merged.versions()
}

// versions returns the versions and ciphers of both sides.
func (c *Conf) versions() mesh.TLSRange {
	out := mesh.DefaultTLS()
	out.Ciphers = c.TLSCiphers
	if v := c.TLSVersion; v != nil {
		if least := protocol(v.Min); least != tlsv3.TlsParameters_TLS_AUTO {
			out.Min = int(least)
		}
		if most := protocol(v.Max); most != tlsv3.TlsParameters_TLS_AUTO {
			out.Max = int(most)
		}
	}
	return out
}

// params returns the params of both sides for a range.
func params(r mesh.TLSRange) *tlsv3.TlsParameters {
	return &tlsv3.TlsParameters{
		CipherSuites:              r.Ciphers,
		TlsMinimumProtocolVersion: tlsv3.TlsParameters_TlsProtocol(r.Min),
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TlsProtocol(r.Max),
	}
}

const (
	nameInspector = "envoy.filters.listener.tls_inspector"
	meshProtocol  = "kuma" // ALPN protocol between proxies of the mesh
)

// Values of transport_protocol, as detected by Envoy's TLS inspector.
const (
	transportTLS   = "tls"
	transportPlain = "raw_buffer"
)

// setMode makes an inbound strict or permissive. It does nothing if no chain has TLS.
func setMode(l *draft.Listener, mode string, serverFirst bool) error {
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
	return acceptPlain(l, serverFirst)
}

// acceptPlain makes a strict inbound also accept connections from outside the mesh: plain ones, and
// those with the workload's TLS, which the inspector distinguishes by ALPN. They get the same
// chains, without the certificate.
func acceptPlain(l *draft.Listener, serverFirst bool) error {
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
		draft.AwaitClient(l.Message, serverFirst)
	}
	return nil
}

// params returns the versions and ciphers of one side of a connection, or nil if none are set.
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

// clientParams returns the params of the connecting side. Its default maximum in Envoy is TLS 1.2,
// so an unset maximum becomes TLS 1.3.
func (c *Conf) clientParams() *tlsv3.TlsParameters {
	p := c.params()
	if p != nil && p.TlsMaximumProtocolVersion == tlsv3.TlsParameters_TLS_AUTO {
		p.TlsMaximumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	return p
}

// withParams returns a transport socket with other params. It returns s if s is not a TLS socket
// with a mesh identity. It never modifies s, which may be shared.
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
	strict     = "Strict"     // accept only clients with a certificate of the mesh
	permissive = "Permissive" // accept all clients
)

// Conf is the conf of a MeshTLS.
type Conf struct {
	TLSVersion *Version `json:"tlsVersion,omitempty"`
	// for TLS 1.2 and older; TLS 1.3 has fixed ciphers
	TLSCiphers []string `json:"tlsCiphers,omitempty"`
	Mode       *string  `json:"mode,omitempty" check:"Strict|Permissive"` // of inbounds. Default the mode of the Mesh
}

// Version limits the TLS versions. An unset limit, or TLSAuto, is Envoy's default.
type Version struct {
	Min *string `json:"min,omitempty"`
	Max *string `json:"max,omitempty"`
}

const auto = "TLSAuto"

// versions returns the names of the versions, oldest first. The indexes are Envoy's enum values.
func versions() []string {
	return []string{
		tlsv3.TlsParameters_TLS_AUTO: auto,
		tlsv3.TlsParameters_TLSv1_0:  "TLS10",
		tlsv3.TlsParameters_TLSv1_1:  "TLS11",
		tlsv3.TlsParameters_TLSv1_2:  "TLS12",
		tlsv3.TlsParameters_TLSv1_3:  "TLS13",
	}
}

// ciphers returns the accepted ciphers: those that are strong and supported by Envoy.
func ciphers() []string {
	return []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305",
		"ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305",
	}
}

// protocol returns Envoy's value for a limit; TLS_AUTO for nil.
func protocol(bound *string) tlsv3.TlsParameters_TlsProtocol {
	if bound == nil {
		return tlsv3.TlsParameters_TLS_AUTO
	}
	return tlsv3.TlsParameters_TlsProtocol(max(0, slices.Index(versions(), *bound)))
}

// contradicts reports whether the limits include no version.
func (v *Version) contradicts() bool {
	return v != nil && protocol(v.Min) > protocol(v.Max) && protocol(v.Max) != tlsv3.TlsParameters_TLS_AUTO
}

// Validate validates names and limits.
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
			at.Field("min").Faultf("%s is newer than the maximum, %s", *t.Min, *t.Max)
		}
	}
	seen := make(map[string]bool, len(c.TLSCiphers))
	for i, s := range c.TLSCiphers {
		at := v.Field("tlsCiphers").Index(i)
		if at.OneOf(s, ciphers()...) && seen[s] {
			at.Faultf("%s is given twice: remove it here", s)
		}
		seen[s] = true
	}
}
