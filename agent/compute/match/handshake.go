package match

import (
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

const (
	DownstreamTLSURL = envoy.TypePrefix + "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
	UpstreamTLSURL   = envoy.TypePrefix + "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
	RawBufferURL     = envoy.TypePrefix + "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"
)

// handshake evaluates the transport socket of the chain. It returns the end of the trace, or nil.
func (w *walk) handshake() *Trace {
	socket := w.match.Chain.GetTransportSocket()
	config := socket.GetTypedConfig()
	if socket == nil || config.GetTypeUrl() == RawBufferURL {
		return nil
	}
	position := w.chain.Below("transportSocket")
	step := Step{Level: LevelTransportSocket, Input: w.conn.First.String(), Choice: ShortURL(config.GetTypeUrl()),
		Place: &position}
	var m tlsv3.DownstreamTlsContext
	if config.GetTypeUrl() != DownstreamTLSURL || config.UnmarshalTo(&m) != nil {
		step.note("this transport socket is not evaluated here")
		w.step(step)
		return nil
	}
	w.tls = true
	why := w.refuses(&m)
	if why != "" {
		step.note("%s", why)
	}
	w.step(step)
	if why != "" {
		return w.end(HandshakeEnd, LevelTransportSocket, "", "the TLS handshake fails: %s", why)
	}
	return nil
}

// refuses returns why the handshake fails, or "".
func (w *walk) refuses(m *tlsv3.DownstreamTlsContext) string {
	if w.conn.First != TLSHello {
		return "the client speaks no TLS, which the filter chain wants"
	}
	if m.GetRequireSni().GetValue() && w.conn.SNI == "" {
		return "the client sends no server name (require_sni)"
	}
	if w.conn.Peer == nil {
		if m.GetRequireClientCertificate().GetValue() {
			return "the client shows no certificate, which the filter chain requires"
		}
		return ""
	}
	common := m.GetCommonTlsContext()
	validation := common.GetValidationContext()
	if combined := common.GetCombinedValidationContext(); combined != nil {
		validation = combined.GetDefaultValidationContext()
	}
	if sans := validation.GetMatchTypedSubjectAltNames(); len(sans) > 0 &&
		!slices.ContainsFunc(sans, w.conn.Peer.hasName) {
		return "no name in the client's certificate is one that the filter chain takes"
	}
	//lint:ignore SA1019 Envoy still reads it
	if sans := validation.GetMatchSubjectAltNames(); len(sans) > 0 && !slices.ContainsFunc(sans, w.conn.Peer.hasAnyName) {
		return "no name in the client's certificate is one that the filter chain takes"
	}
	return ""
}

// hasName reports whether a SAN matcher matches the peer. Only the types URI and DNS can match.
func (p *Peer) hasName(m *tlsv3.SubjectAltNameMatcher) bool {
	value := compileString(m.GetMatcher())
	switch m.GetSanType() {
	case tlsv3.SubjectAltNameMatcher_URI:
		return slices.ContainsFunc(p.URIs, value.matches)
	case tlsv3.SubjectAltNameMatcher_DNS:
		return slices.ContainsFunc(p.DNS, value.matches)
	}
	return false
}

func (p *Peer) hasAnyName(m *matcherv3.StringMatcher) bool {
	value := compileString(m)
	return slices.ContainsFunc(p.URIs, value.matches) || slices.ContainsFunc(p.DNS, value.matches)
}
