package meshtls

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
)

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

// clientParams are the params of the side that connects. There Envoy goes up to TLS 1.2 by itself, so that a minimum
// of 1.3 alone would leave no version.
func (c *Conf) clientParams() *tlsv3.TlsParameters {
	p := c.params()
	if p != nil && p.TlsMinimumProtocolVersion == tlsv3.TlsParameters_TLSv1_3 {
		p.TlsMaximumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	return p
}

// withParams returns a transport socket with other params; itself when it is not one of TLS with a context of the
// type. It never changes the socket, which may be shared.
func withParams(s *corev3.TransportSocket, ctx interface {
	proto.Message
	GetCommonTlsContext() *tlsv3.CommonTlsContext
}, p *tlsv3.TlsParameters) (*corev3.TransportSocket, error) {
	a := s.GetTypedConfig()
	if s.GetName() != draft.NameTLS || !a.MessageIs(ctx) {
		return s, nil
	}
	if err := a.UnmarshalTo(ctx); err != nil {
		return s, err
	}
	common := ctx.GetCommonTlsContext()
	if common == nil {
		return s, nil // no identity of the mesh
	}
	common.TlsParams = p
	packed, err := draft.Extension{Name: draft.NameTLS, Message: ctx}.Pack()
	if err != nil {
		return s, err
	}
	return &corev3.TransportSocket{Name: s.Name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed}}, nil
}
