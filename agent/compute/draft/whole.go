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

// A draft keeps apart what Envoy's messages hold together, so that plugins find it. Who wants to
// change a listener, cluster or connection manager as a whole takes it with Whole, changes the
// message, which shares nothing with the draft, and gives it back with SetWhole.

// Whole returns the listener as Envoy gets it, with chains, filters, routes and tags. It fails
// where sealing would.
func (l *Listener) Whole() (*listenerv3.Listener, error) {
	out := &listenerv3.Listener{}
	var scratch []byte
	return out, decodeWhole(out)(appendListener(nil, l, nil, &scratch, strict))
}

// Whole returns the connection manager as Envoy gets it, with filters and inline routes. It fails
// where sealing would.
func (h *HTTP) Whole() (*hcmv3.HttpConnectionManager, error) {
	out := &hcmv3.HttpConnectionManager{}
	return out, decodeWhole(out)(h.append(nil, inline, strict))
}

// Whole returns the cluster as Envoy gets it, with the HTTP options. It fails where sealing would.
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

// Copy returns a listener of which every field, also of its chains and connection managers, can be
// given another value without changing l. The messages and lists themselves are shared.
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

// Clone returns a chain that shares no message with c.
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

// SetWhole takes a listener apart. Tags that differ from its own are a part of its metadata from
// then on. The message must not be used afterwards. It fails, and leaves the draft as it was, where
// a filter's configuration is not what its type URL says.
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

// takeTags takes the tags of the listener out of the metadata of a message, and reports whether it
// has just these.
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

// newChain takes a filter chain apart, whose message must not be used afterwards. A connection
// manager or TCP proxy that is the last filter becomes the terminal one; all others stay packed, as
// Network.
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

// SetWhole takes a connection manager apart. The message must not be used afterwards.
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

// NewHTTPFilter returns an HTTP filter as extension, packed as it is.
func NewHTTPFilter(f *hcmv3.HttpFilter) Extension {
	return Extension{Name: f.Name, Packed: f.GetTypedConfig(), Discovery: f.GetConfigDiscovery(), Optional: f.IsOptional,
		Disabled: f.Disabled}
}

// SetWhole takes a cluster apart. The message must not be used afterwards. It fails, and leaves the
// draft as it was, where the HTTP options are not what their type URL says.
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

// The origins of what Kind says, by the names that patches match them with.
const (
	OriginInbound      = "inbound"
	OriginOutbound     = "outbound"
	OriginTransparent  = "transparent"
	OriginDirectAccess = "direct-access"
)

// MadeBy names the part of the agent that the listener is of: Origin, else what Kind says.
func (l *Listener) MadeBy() string {
	by := [...]string{Inbound: OriginInbound, InboundPassthrough: OriginTransparent,
		OutboundPassthrough: OriginTransparent,
		DirectAccess:        OriginDirectAccess, OtherListener: ""}
	return cmp.Or(l.Origin, by[l.Kind], OriginOutbound)
}

// MadeBy names the part of the agent that the cluster is of: Origin, else what Kind says, "" for
// OtherCluster.
func (c *Cluster) MadeBy() string {
	by := [...]string{OutboundCluster: OriginOutbound, InboundCluster: OriginInbound,
		PassthroughCluster: OriginTransparent, OtherCluster: ""}
	return cmp.Or(c.Origin, by[c.Kind])
}
