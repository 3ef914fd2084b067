package meshtls

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/draft"
)

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
		l.Message.ListenerFilters = slices.DeleteFunc(slices.Clone(l.Message.ListenerFilters), func(f *listenerv3.ListenerFilter) bool { return f.GetName() == nameInspector })
		return nil
	}
	return unlock(l)
}

// unlock lets a strict inbound also take connections that are not of the mesh: plain ones, and those with a TLS of the
// workload's own, which is told from that of the mesh by ALPN. What they meet is what the mesh meets, but for the
// certificate.
func unlock(l *draft.Listener) error {
	whole, err := l.Whole()
	if err != nil {
		return err
	}
	inspector, err := draft.Extension{Name: nameInspector, Message: &inspectorv3.TlsInspector{}}.Pack()
	if err != nil {
		return err
	}
	var chains []*draft.Chain
	for i, ch := range l.Chains {
		for _, transport := range []string{transportPlain, transportTLS} {
			m := proto.Clone(whole.FilterChains[i]).(*listenerv3.FilterChain)
			m.TransportSocket = nil
			m.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: transport}
			copied, err := draft.NewChain(m)
			if err != nil {
				return err
			}
			chains = append(chains, copied)
		}
		ch.Message.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: transportTLS, ApplicationProtocols: []string{meshProtocol}}
		chains = append(chains, ch)
	}
	l.Chains = chains
	l.Message.ListenerFilters = append(slices.Clone(l.Message.ListenerFilters), &listenerv3.ListenerFilter{
		Name: nameInspector, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: inspector},
	})
	return nil
}
