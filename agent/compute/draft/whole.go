package draft

import (
	"cmp"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// A draft stores parts of Envoy's messages separately, so that plugins find them. To edit a whole
// listener, cluster, or connection manager, call Whole, edit the returned message, which shares
// nothing with the draft, and call SetWhole.

// Whole returns the complete message of the listener, with chains, filters, routes, and tags. It
// fails if sealing would fail.
func (l *Listener) Whole() (*listenerv3.Listener, error) {
	out := &listenerv3.Listener{}
	var scratch []byte
	return out, decodeWhole(out)(appendListener(nil, l, nil, &scratch, strict))
}

// Whole returns the complete message of the connection manager, with filters and inline routes. It
// fails if sealing would fail.
func (h *HTTP) Whole() (*hcmv3.HttpConnectionManager, error) {
	out := &hcmv3.HttpConnectionManager{}
	return out, decodeWhole(out)(h.append(nil, inline, strict))
}

// Whole returns the complete message of the cluster, with the HTTP options. It fails if sealing
// would fail.
func (c *Cluster) Whole() (*clusterv3.Cluster, error) {
	out := &clusterv3.Cluster{}
	return out, decodeWhole(out)(appendCluster(nil, c, strict))
}

func decodeWhole(out proto.Message) func([]byte, error) error {
	return func(b []byte, err error) error {
		if err != nil {
			return err
		}
		return proto.Unmarshal(b, out)
	}
}

// Copy returns a shallow copy of the listener, its chains, and its connection managers. Fields of
// the copy can be set without changing l. Messages and lists are shared.
func (l *Listener) Copy() *Listener {
	out := &Listener{Kind: l.Kind, Origin: l.Origin, Port: l.Port, Inbound: l.Inbound, Service: l.Service, Tags: l.Tags,
		Message: l.Message,
		Chains:  make([]*Chain, len(l.Chains))}
	for i, c := range l.Chains {
		out.Chains[i] = &Chain{Message: c.Message, TLS: c.TLS, Network: c.Network, HTTP: c.HTTP, TCP: c.TCP}
		if c.HTTP != nil {
			h := *c.HTTP
			out.Chains[i].HTTP = &h
		}
	}
	return out
}

// Clone returns a deep copy of the chain.
func (c *Chain) Clone() *Chain {
	out := &Chain{TLS: c.TLS, Network: slices.Clone(c.Network), Message: &listenerv3.FilterChain{}}
	if c.Message != nil {
		out.Message = proto.CloneOf(c.Message)
	}
	if c.TCP != nil {
		out.TCP = proto.CloneOf(c.TCP)
	}
	if h := c.HTTP; h != nil {
		out.HTTP = &HTTP{Message: proto.CloneOf(h.Message), Filters: slices.Clone(h.Filters), Headers: h.Headers,
			Origins: h.Origins}
		if h.Routes != nil {
			out.HTTP.Routes = proto.CloneOf(h.Routes)
		}
	}
	return out
}

// SetWhole replaces the listener by a complete message. Tags that differ from those of the listener
// become part of its metadata. The message must not be used afterwards. If the config of a filter
// does not match its type URL, SetWhole fails and does not change the draft.
func (l *Listener) SetWhole(m *listenerv3.Listener) error {
	chains := make([]*Chain, len(m.FilterChains))
	for i, fc := range m.FilterChains {
		c, err := newChain(fc)
		if err != nil {
			return fmt.Errorf("filter chain %d %q: %w", i, fc.GetName(), err)
		}
		chains[i] = c
	}
	m.FilterChains = nil
	if !l.takeTags(m) {
		l.Tags = nil
	}
	l.Message, l.Chains = m, chains
	return nil
}

// takeTags removes the tags of the listener from the metadata of a message. It reports whether the
// message has exactly these tags.
func (l *Listener) takeTags(m *listenerv3.Listener) bool {
	of := m.GetMetadata().GetFilterMetadata()
	fields := of[tagsNamespace].GetFields()
	if l.Tags == nil || of[tagsNamespace] == nil || len(fields) != len(l.Tags) {
		return false
	}
	for k, v := range l.Tags {
		if s, ok := fields[k].GetKind().(*structpb.Value_StringValue); !ok || s.StringValue != v {
			return false
		}
	}
	if delete(of, tagsNamespace); len(of) == 0 && len(m.Metadata.TypedFilterMetadata) == 0 {
		m.Metadata = nil
	}
	return true
}

// newChain converts a filter chain, whose message must not be used afterwards. If the last filter
// is a connection manager or TCP proxy, it becomes the terminal filter. The other filters stay
// packed in Network.
func newChain(m *listenerv3.FilterChain) (*Chain, error) {
	c := &Chain{Message: m}
	for i, f := range m.Filters {
		var err error
		a := f.GetTypedConfig()
		switch last := i == len(m.Filters)-1; {
		case last && f.Name == NameHCM && a.GetTypeUrl() == hcmURL:
			hcm := &hcmv3.HttpConnectionManager{}
			if err = proto.Unmarshal(a.Value, hcm); err == nil {
				c.HTTP = &HTTP{}
				c.HTTP.SetWhole(hcm)
			}
		case last && f.Name == NameTCPProxy && a.GetTypeUrl() == tcpURL:
			c.TCP = &tcpv3.TcpProxy{}
			err = proto.Unmarshal(a.Value, c.TCP)
		default:
			c.Network = append(c.Network, Extension{Name: f.Name, Packed: a, Discovery: f.GetConfigDiscovery()})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	m.Filters = nil
	return c, nil
}

// SetWhole replaces the connection manager by a complete message, which must not be used
// afterwards.
func (h *HTTP) SetWhole(m *hcmv3.HttpConnectionManager) {
	h.Filters, h.Routes, h.Headers = make([]Extension, len(m.HttpFilters)), nil, nil
	for i, f := range m.HttpFilters {
		h.Filters[i] = NewHTTPFilter(f)
	}
	m.HttpFilters = nil
	if r, ok := m.RouteSpecifier.(*hcmv3.HttpConnectionManager_RouteConfig); ok {
		if h.Routes = r.RouteConfig; h.Routes == nil {
			h.Routes = &routev3.RouteConfiguration{}
		}
		m.RouteSpecifier = nil
	}
	h.Message = m
}

// NewHTTPFilter returns an HTTP filter as a packed extension.
func NewHTTPFilter(f *hcmv3.HttpFilter) Extension {
	return Extension{Name: f.Name, Packed: f.GetTypedConfig(), Discovery: f.GetConfigDiscovery(), Optional: f.IsOptional,
		Disabled: f.Disabled}
}

// SetWhole replaces the cluster by a complete message, which must not be used afterwards. If the
// HTTP options do not match their type URL, SetWhole fails and does not change the draft.
func (c *Cluster) SetWhole(m *clusterv3.Cluster) error {
	var http *httpv3.HttpProtocolOptions
	if a := m.TypedExtensionProtocolOptions[NameHTTPOptions]; a.GetTypeUrl() == httpOptionsURL {
		http = &httpv3.HttpProtocolOptions{}
		if err := anypb.UnmarshalTo(a, http, proto.UnmarshalOptions{}); err != nil {
			return fmt.Errorf("%s: %w", NameHTTPOptions, err)
		}
		delete(m.TypedExtensionProtocolOptions, NameHTTPOptions)
	}
	c.Message, c.HTTP = m, http
	return nil
}

// Origins that follow from Kind, by the names that patches match.
const (
	OriginInbound      = "inbound"
	OriginOutbound     = "outbound"
	OriginTransparent  = "transparent"
	OriginDirectAccess = "direct-access"
)

// MadeBy returns the component that created the listener: Origin, or the one that follows from
// Kind.
func (l *Listener) MadeBy() string {
	by := [...]string{Inbound: OriginInbound, InboundPassthrough: OriginTransparent,
		OutboundPassthrough: OriginTransparent,
		DirectAccess:        OriginDirectAccess, OtherListener: ""}
	return cmp.Or(l.Origin, by[l.Kind], OriginOutbound)
}

// MadeBy returns the component that created the cluster: Origin, or the one that follows from Kind,
// "" for OtherCluster.
func (c *Cluster) MadeBy() string {
	by := [...]string{OutboundCluster: OriginOutbound, InboundCluster: OriginInbound,
		PassthroughCluster: OriginTransparent, OtherCluster: ""}
	return cmp.Or(c.Origin, by[c.Kind])
}
