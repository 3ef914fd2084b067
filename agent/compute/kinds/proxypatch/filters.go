package proxypatch

import (
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
)

// find returns the index of the first filter with a name, or of the first filter if name is nil; -1
// if there is none.
func find(list []draft.Extension, name *string) int {
	return slices.IndexFunc(list, func(e draft.Extension) bool { return is(name, e.Name) })
}

// terminal returns the name of a chain's terminal filter, or "".
func terminal(c *draft.Chain) string {
	switch {
	case c.HTTP != nil:
		return draft.NameHCM
	case c.TCP != nil:
		return draft.NameTCPProxy
	}
	return ""
}

// changeChain applies a change to the network filters of a chain. It moves the terminal filter into
// the list if the change may affect it.
func (e *editor) changeChain(c *draft.Chain, ch *Change) error {
	if c.HTTP != nil && ch.op == Patch && is(ch.match.name, draft.NameHCM) &&
		!ch.touches("httpFilters", "routeConfig", "rds", "scopedRoutes") {
		if err := e.patchManager(c.HTTP, ch); err != nil || find(c.Network, ch.match.name) < 0 {
			return err
		}
		var err error
		c.Network, err = e.changeFilters(c.Network, ch)
		return err
	}
	if t := terminal(c); t != "" && ch.op != AddFirst && (ch.op == AddLast || is(ch.match.name, t)) {
		f := draft.Extension{Name: t, Message: c.TCP}
		if c.HTTP != nil {
			m, err := c.HTTP.Whole()
			if err != nil {
				return err
			}
			f.Message = m
		}
		c.Network, c.HTTP, c.TCP = append(slices.Clip(c.Network), f), nil, nil
	}
	var err error
	if c.Network, err = e.changeFilters(c.Network, ch); err != nil {
		return err
	}
	return splitTerminal(c)
}

// patchManager patches fields of a connection manager other than filters and routes, which remain
// shared.
func (e *editor) patchManager(h *draft.HTTP, ch *Change) error {
	m := proto.Clone(h.Message).(*hcmv3.HttpConnectionManager)
	if h.Routes != nil {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}}
	}
	f, err := e.patchFilter(draft.Extension{Message: m}, ch)
	if err != nil {
		return fmt.Errorf("%s: %w", draft.NameHCM, err)
	}
	h.Message = f.Message.(*hcmv3.HttpConnectionManager)
	if h.Routes != nil {
		h.Message.RouteSpecifier = nil
	}
	return nil
}

// splitTerminal moves a connection manager or TCP proxy from the end of the list to the chain's
// terminal filter.
func splitTerminal(c *draft.Chain) error {
	last := len(c.Network) - 1
	if terminal(c) != "" || last < 0 ||
		c.Network[last].Name != draft.NameHCM && c.Network[last].Name != draft.NameTCPProxy {
		return nil
	}
	m, err := message(c.Network[last])
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		c.HTTP = &draft.HTTP{}
		c.HTTP.SetWhole(m)
	case *tcpv3.TcpProxy:
		c.TCP = m
	default:
		return nil
	}
	c.Network = c.Network[:last:last]
	return nil
}

// message returns the config of a filter, or nil. Callers must not modify it.
func message(f draft.Extension) (proto.Message, error) {
	if f.Message != nil || f.Packed == nil {
		return f.Message, nil
	}
	m, err := f.Packed.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("%s: %s", f.Packed.GetTypeUrl(), plainError(err))
	}
	return m, nil
}

// changeFilters returns the list with one change applied.
func (e *editor) changeFilters(list []draft.Extension, ch *Change) ([]draft.Extension, error) {
	i := find(list, ch.match.name)
	switch {
	case ch.op == AddFirst:
		return slices.Insert(slices.Clone(list), 0, ch.filter), nil
	case ch.op == AddLast:
		return append(slices.Clip(list), ch.filter), nil
	case i < 0:
		return list, nil
	case ch.op == AddBefore:
		return slices.Insert(slices.Clone(list), i, ch.filter), nil
	case ch.op == AddAfter:
		return slices.Insert(slices.Clone(list), i+1, ch.filter), nil
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

// patchFilter returns a filter with the change applied to its config. Filters that share a config
// also share the result.
func (e *editor) patchFilter(f draft.Extension, ch *Change) (draft.Extension, error) {
	f.Optional, f.Disabled = f.Optional || ch.filter.Optional, f.Disabled || ch.filter.Disabled
	if ch.patch == nil && ch.config.message == nil {
		return f, nil
	}
	if f.Discovery != nil {
		return f, fmt.Errorf("its configuration comes from extension config discovery and cannot be patched")
	}
	shared := mergedKey{ch, f.Packed}
	if have := e.merged[shared]; have != nil && f.Message == nil {
		f.Packed = have
		return f, nil
	}
	m, err := message(f)
	switch {
	case err != nil:
		return f, err
	case m == nil && ch.patch != nil:
		return f, fmt.Errorf("the filter has no configuration to patch")
	case m == nil:
		f.Message = proto.Clone(ch.config.message)
		return f, nil
	case ch.patch == nil && nameOfType(m) != nameOfType(ch.config.message):
		return f, fmt.Errorf("the configuration has type %s, and the value has type %s",
			nameOfType(m), nameOfType(ch.config.message))
	}
	if m, err = ch.of(m, ch.config); err != nil {
		return f, err
	}
	if f.Message != nil {
		f.Message = m
		return f, nil
	}
	if f.Packed, err = pack(m); err != nil {
		return f, err
	}
	if e.merged == nil {
		e.merged = map[mergedKey]*anypb.Any{}
	}
	e.merged[shared] = f.Packed
	return f, nil
}

func nameOfType(m proto.Message) string { return string(m.ProtoReflect().Descriptor().FullName()) }

// tagsNamespace is the metadata namespace of a listener's tags.
const tagsNamespace = "io.kuma.tags"

// is reports whether s equals *want. A nil want matches any string.
func is(want *string, s string) bool { return want == nil || *want == s }

type cluster struct{ *draft.Cluster }

func (x cluster) name() string        { return x.Message.GetName() }
func (x cluster) draft() *draft.Draft { return &draft.Draft{Clusters: []*draft.Cluster{x.Cluster}} }

func (x cluster) affectedBy(c *Change) bool {
	return c.target == Clusters && c.op != Add && is(c.match.name, x.name()) && is(c.match.origin, x.MadeBy())
}

func (x cluster) patch(_ *editor, ch *Change) error {
	return patchMessage(ch, &x.Message, x.Whole, x.SetWhole, "typedExtensionProtocolOptions")
}

// patchMessage patches the message of an item. It assembles the whole message if the change affects
// fields that the draft stores separately.
func patchMessage[M proto.Message](ch *Change, message *M, whole func() (M, error), setWhole func(M) error,
	separate ...string) error {
	m, set := *message, func(m M) error {
		*message = m
		return nil
	}
	if ch.touches(separate...) {
		var err error
		if m, err = whole(); err != nil {
			return err
		}
		set = setWhole
	}
	after, err := ch.of(m, ch.value)
	if err != nil {
		return err
	}
	return set(after.(M))
}

type listener struct{ *draft.Listener }

func (l listener) name() string        { return l.Message.GetName() }
func (l listener) draft() *draft.Draft { return &draft.Draft{Listeners: []*draft.Listener{l.Listener}} }

func (l listener) affectedBy(c *Change) bool {
	name := c.match.listener
	if c.target == Listeners {
		name = c.match.name
	}
	if _, _, adds := c.Adds(); adds || c.target == Clusters || !is(name, l.name()) || !is(c.match.origin, l.MadeBy()) ||
		!l.has(c.match.tags) {
		return false
	}
	return c.target == Listeners || slices.ContainsFunc(l.Chains, c.affectsChain)
}

// has reports whether the listener has all given tags; "*" matches any value.
func (l listener) has(tags map[string]string) bool {
	for k, want := range tags {
		have, ok := l.Tags[k]
		if l.Tags == nil {
			var v *structpb.Value
			if v, ok = l.Message.GetMetadata().GetFilterMetadata()[tagsNamespace].GetFields()[k]; ok {
				have = v.GetStringValue()
			}
		}
		if !ok || want != "*" && want != have {
			return false
		}
	}
	return true
}

// affectsChain reports whether a change applies to a filter chain.
func (c *Change) affectsChain(ch *draft.Chain) bool {
	anywhere := c.op == AddFirst || c.op == AddLast
	switch {
	case c.target == NetworkFilters:
		t := terminal(ch)
		return anywhere || find(ch.Network, c.match.name) >= 0 || t != "" && is(c.match.name, t)
	case ch.HTTP == nil:
		return false
	case c.target == HTTPFilters:
		return anywhere || find(ch.HTTP.Filters, c.match.name) >= 0
	}
	r := ch.HTTP.Routes
	return r != nil && is(c.match.routes, r.Name) &&
		(c.op == Add || slices.ContainsFunc(r.VirtualHosts, func(h *routev3.VirtualHost) bool {
			return is(c.match.name, h.Name)
		}))
}

func (l listener) patch(e *editor, ch *Change) error {
	if ch.target == Listeners {
		return patchMessage(ch, &l.Message, l.Whole, l.SetWhole, "filterChains", "metadata")
	}
	for i, c := range l.Chains {
		if !ch.affectsChain(c) {
			continue
		}
		var err error
		switch ch.target {
		case NetworkFilters:
			err = e.changeChain(c, ch)
		case HTTPFilters:
			c.HTTP.Filters, err = e.changeFilters(c.HTTP.Filters, ch)
		default:
			c.HTTP.Routes, err = changeRoutes(c.HTTP.Routes, ch)
		}
		if err != nil && len(l.Chains) > 1 {
			return fmt.Errorf("filter chain %d: %w", i, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// changeRoutes returns the route config with one change applied to its virtual hosts.
func changeRoutes(r *routev3.RouteConfiguration, ch *Change) (*routev3.RouteConfiguration, error) {
	r = proto.Clone(r).(*routev3.RouteConfiguration)
	switch ch.op {
	case Add:
		r.VirtualHosts = append(r.VirtualHosts, proto.Clone(ch.value.message).(*routev3.VirtualHost))
		return r, nil
	case Remove:
		r.VirtualHosts = slices.DeleteFunc(r.VirtualHosts, func(h *routev3.VirtualHost) bool {
			return is(ch.match.name, h.Name)
		})
		return r, nil
	}
	for i, h := range r.VirtualHosts {
		if !is(ch.match.name, h.Name) {
			continue
		}
		after, err := ch.of(h, ch.value)
		if err != nil {
			return nil, fmt.Errorf("virtual host %q: %w", h.Name, err)
		}
		r.VirtualHosts[i] = after.(*routev3.VirtualHost)
	}
	return r, nil
}
