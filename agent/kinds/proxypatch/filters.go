package proxypatch

import (
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// findExtension returns the index of the first filter of a name, nil being any; -1 for none.
func findExtension(list []draft.Extension, name *string) int {
	return slices.IndexFunc(list, func(e draft.Extension) bool { return is(name, e.Name) })
}

// findFilter is findExtension for the filters of a chain, of which the terminal one comes last.
func findFilter(c *draft.Chain, name *string) int {
	if i := findExtension(c.Network, name); i >= 0 {
		return i
	}
	if t := terminal(c); t != "" && is(name, t) {
		return len(c.Network)
	}
	return -1
}

// terminal is the name of the terminal filter, "" for none.
func terminal(c *draft.Chain) string {
	switch {
	case c.HTTP != nil:
		return draft.NameHCM
	case c.TCP != nil:
		return draft.NameTCPProxy
	}
	return ""
}

// changeFilters returns a list of filters with one change made.
func (e *editor) changeFilters(list []draft.Extension, ch *change) ([]draft.Extension, error) {
	i := findExtension(list, ch.match.name)
	added := []draft.Extension{ch.filter}
	switch {
	case ch.op == AddFirst:
		return slices.Concat(added, list), nil
	case ch.op == AddLast:
		return slices.Concat(list, added), nil
	case i < 0:
		return list, nil
	case ch.op == AddBefore:
		return slices.Concat(list[:i], added, list[i:]), nil
	case ch.op == AddAfter:
		return slices.Concat(list[:i+1], added, list[i+1:]), nil
	}
	list = slices.Clone(list)
	if ch.op == Remove {
		return slices.DeleteFunc(list, func(f draft.Extension) bool { return is(ch.match.name, f.Name) }), nil
	}
	for i, f := range list {
		if !is(ch.match.name, f.Name) {
			continue
		}
		f, err := e.patchFilter(f, ch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		list[i] = f
	}
	return list, nil
}

// patchFilter returns a filter with another configuration.
func (e *editor) patchFilter(f draft.Extension, ch *change) (draft.Extension, error) {
	f.Optional, f.Disabled = f.Optional || ch.filter.Optional, f.Disabled || ch.filter.Disabled
	if ch.patch == nil && ch.config.message == nil {
		return f, nil
	}
	if f.Discovery != nil {
		return f, fmt.Errorf("its configuration is discovered: it cannot be patched here")
	}
	shared := mergedKey{ch, f.Packed}
	if have := e.merged[shared]; have != nil && f.Message == nil {
		f.Packed = have
		return f, nil
	}
	a, err := f.Pack()
	if err != nil {
		return f, err
	}
	switch {
	case a == nil && ch.patch != nil:
		return f, fmt.Errorf("there is no configuration to patch")
	case a == nil:
		a, err = pack(ch.config.message)
	case ch.patch != nil:
		a, err = patchPacked(a, ch.patch)
	default:
		a, err = mergeAny(a, ch.config)
	}
	if err != nil {
		return f, err
	}
	if f.Message == nil && f.Packed != nil {
		if e.merged == nil {
			e.merged = map[mergedKey]*anypb.Any{}
		}
		e.merged[shared] = a
	}
	f.Message, f.Packed = nil, a
	return f, nil
}

func patchPacked(a *anypb.Any, p *patch) (*anypb.Any, error) {
	m, err := a.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("%s", plainError(err))
	}
	after, err := p.apply(m)
	if err != nil {
		return nil, err
	}
	return pack(after)
}

// changeChain makes one change in the network filters of a chain.
func (e *editor) changeChain(c *draft.Chain, ch *change) error {
	i := findFilter(c, ch.match.name)
	last := len(c.Network)
	if ch.op == Patch {
		return e.patchChain(c, ch, i)
	}
	if terminal(c) != "" {
		switch {
		case ch.op == AddBefore && i == last:
			c.Network = slices.Concat(c.Network, []draft.Extension{ch.filter})
			return nil
		case ch.op == Remove && is(ch.match.name, terminal(c)):
			c.HTTP, c.TCP = nil, nil
		case ch.op == AddLast || ch.op == AddAfter && i == last:
			if err := packTerminal(c); err != nil {
				return err
			}
		}
	}
	var err error
	if c.Network, err = e.changeFilters(c.Network, ch); err != nil {
		return err
	}
	return unpackTerminal(c)
}

// patchChain patches all filters of a name.
func (e *editor) patchChain(c *draft.Chain, ch *change, first int) error {
	if first < 0 {
		return nil
	}
	var err error
	if first < len(c.Network) {
		if c.Network, err = e.changeFilters(c.Network, ch); err != nil {
			return err
		}
	}
	switch {
	case !is(ch.match.name, terminal(c)):
	case c.HTTP != nil:
		err = patchManager(c.HTTP, ch)
	case c.TCP != nil:
		err = patchProxy(c, ch)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", terminal(c), err)
	}
	return nil
}

// packTerminal makes the terminal filter one of the others, so that something can follow it.
func packTerminal(c *draft.Chain) error {
	f := draft.Extension{Name: terminal(c), Message: c.TCP}
	var err error
	if c.HTTP != nil {
		f.Message = nil
		f.Packed, err = c.HTTP.Pack()
	} else {
		f.Packed, err = f.Pack()
	}
	f.Message = nil
	c.Network, c.HTTP, c.TCP = slices.Concat(c.Network, []draft.Extension{f}), nil, nil
	return err
}

// unpackTerminal is the inverse, where a connection manager or TCP proxy is the last filter.
func unpackTerminal(c *draft.Chain) error {
	last := len(c.Network) - 1
	if terminal(c) != "" || last < 0 || c.Network[last].Packed == nil {
		return nil
	}
	f := c.Network[last]
	t, err := draft.NewChain(&listenerv3.FilterChain{Filters: []*listenerv3.Filter{{
		Name: f.Name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: f.Packed},
	}}})
	if err != nil {
		return err
	}
	if terminal(t) != "" {
		c.Network, c.HTTP, c.TCP = c.Network[:last:last], t.HTTP, t.TCP
	}
	return nil
}

// patchManager changes the HTTP connection manager, as a whole only where its filters or routes are concerned.
func patchManager(h *draft.HTTP, ch *change) error {
	over, ok := ch.config.message.(*hcmv3.HttpConnectionManager)
	if ch.patch == nil && !ok {
		return fmt.Errorf("the value is of type %s", ch.config.message.ProtoReflect().Descriptor().FullName())
	}
	whole := len(over.GetHttpFilters()) > 0 || over.GetRouteSpecifier() != nil || ch.patch != nil && ch.patch.touches("httpFilters", "routeConfig", "rds", "scopedRoutes")
	var m *hcmv3.HttpConnectionManager
	if whole {
		var err error
		if m, err = h.Whole(); err != nil {
			return err
		}
	} else if m = proto.Clone(h.Message).(*hcmv3.HttpConnectionManager); h.Routes != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}}
	}
	if ch.patch != nil {
		after, err := ch.patch.apply(m)
		if err != nil {
			return err
		}
		m = after.(*hcmv3.HttpConnectionManager)
	} else {
		if err := merge(m, ch.config); err != nil {
			return err
		}
		if err := broken(m, packs(over.ProtoReflect())); err != nil {
			return err
		}
	}
	if whole {
		h.SetWhole(m)
		return nil
	}
	if h.Routes != nil {
		m.RouteSpecifier = nil
	}
	h.Message = m
	return nil
}

func patchProxy(c *draft.Chain, ch *change) error {
	if ch.patch != nil {
		after, err := ch.patch.apply(c.TCP)
		if err == nil {
			c.TCP = after.(*tcpv3.TcpProxy)
		}
		return err
	}
	if _, ok := ch.config.message.(*tcpv3.TcpProxy); !ok {
		return fmt.Errorf("the value is of type %s", ch.config.message.ProtoReflect().Descriptor().FullName())
	}
	c.TCP = proto.Clone(c.TCP).(*tcpv3.TcpProxy)
	if err := merge(c.TCP, ch.config); err != nil {
		return err
	}
	return broken(c.TCP, true)
}
