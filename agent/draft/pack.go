package draft

import (
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// typePrefix makes a type URL of a message's name.
const typePrefix = "type.googleapis.com/"

func pack(m proto.Message) (*anypb.Any, error) {
	body, err := appendMessage(nil, m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: typePrefix + string(m.ProtoReflect().Descriptor().FullName()), Value: body}, nil
}

// Pack returns the extension's configuration as Any.
func (e Extension) Pack() (*anypb.Any, error) {
	if e.Message == nil {
		return e.Packed, nil
	}
	a, err := pack(e.Message)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	return a, nil
}

func packCluster(c *Cluster) error {
	if c.HTTP == nil {
		return nil
	}
	if c.Message.TypedExtensionProtocolOptions == nil {
		switch c.HTTP {
		case HTTP1Options:
			c.Message.TypedExtensionProtocolOptions = http1Only
			return nil
		case HTTP2Options:
			c.Message.TypedExtensionProtocolOptions = http2Only
			return nil
		}
		c.Message.TypedExtensionProtocolOptions = make(map[string]*anypb.Any, 1)
	}
	a, err := pack(c.HTTP)
	if err != nil {
		return fmt.Errorf("HTTP options: %w", err)
	}
	c.Message.TypedExtensionProtocolOptions[NameHTTPOptions] = a
	return nil
}

func packListener(l *Listener) error {
	if len(l.Chains) == 0 {
		return nil
	}
	l.Message.FilterChains = make([]*listenerv3.FilterChain, len(l.Chains))
	for i, c := range l.Chains {
		if c.Message == nil {
			c.Message = &listenerv3.FilterChain{}
		}
		if err := packChain(c); err != nil {
			return fmt.Errorf("filter chain %d %q: %w", i, c.Message.GetName(), err)
		}
		l.Message.FilterChains[i] = c.Message
	}
	return nil
}

// filter is the messages around one packed network filter, allocated together.
type filter struct {
	message listenerv3.Filter
	config  listenerv3.Filter_TypedConfig
}

func packChain(c *Chain) error {
	extensions := c.Network
	switch {
	case c.HTTP != nil:
		if err := PackHTTP(c.HTTP); err != nil {
			return err
		}
		extensions = append(extensions, Extension{Name: NameHCM, Message: c.HTTP.Message})
	case c.TCP != nil:
		extensions = append(extensions, Extension{Name: NameTCPProxy, Message: c.TCP})
	}
	filters := make([]filter, len(extensions))
	c.Message.Filters = make([]*listenerv3.Filter, len(extensions))
	for i, e := range extensions {
		a, err := e.Pack()
		if err != nil {
			return err
		}
		f := &filters[i]
		f.config.TypedConfig = a
		f.message.Name, f.message.ConfigType = e.Name, &f.config
		c.Message.Filters[i] = &f.message
	}
	return nil
}

// PackHTTP puts the filters and the inline routes into the connection manager's message.
func PackHTTP(h *HTTP) error {
	h.Message.HttpFilters = make([]*hcmv3.HttpFilter, len(h.Filters))
	for i, f := range h.Filters {
		switch f.Packed {
		case router:
			h.Message.HttpFilters[i] = routerFilter
			continue
		case grpcStats:
			h.Message.HttpFilters[i] = grpcStatsFilter
			continue
		}
		a, err := f.Pack()
		if err != nil {
			return err
		}
		h.Message.HttpFilters[i] = httpFilter(f.Name, a)
	}
	if h.Routes != nil {
		h.Message.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: h.Routes}
	}
	return nil
}

func httpFilter(name string, a *anypb.Any) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: a}}
}
