package proxypatch

import (
	"fmt"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/draft"
)

// tagsNamespace is where the metadata of a listener says what it stands for.
const tagsNamespace = "io.kuma.tags"

// is reports whether a text is the one that is wanted; nil wants any.
func is(want *string, s string) bool { return want == nil || *want == s }

type cluster struct{ *draft.Cluster }

func (x cluster) name() string        { return x.Message.GetName() }
func (x cluster) draft() *draft.Draft { return &draft.Draft{Clusters: []*draft.Cluster{x.Cluster}} }

func (x cluster) concernedBy(c *Change) bool {
	return c.target == Clusters && c.op != Add && is(c.match.name, x.name()) && is(c.match.origin, x.MadeBy())
}

func (x cluster) patch(_ *editor, ch *Change) error {
	return patchMessage(ch, &x.Message, x.Whole, x.SetWhole, "typedExtensionProtocolOptions")
}

// patchMessage patches the message of an item: as a whole where the change touches fields that the draft keeps apart.
func patchMessage[M proto.Message](ch *Change, message *M, whole func() (M, error), setWhole func(M) error, apart ...string) error {
	m, set := *message, func(m M) error {
		*message = m
		return nil
	}
	if ch.touches(apart...) {
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

func (l listener) concernedBy(c *Change) bool {
	name := c.match.listener
	if c.target == Listeners {
		name = c.match.name
	}
	if _, _, adds := c.Adds(); adds || c.target == Clusters || !is(name, l.name()) || !is(c.match.origin, l.MadeBy()) || !l.has(c.match.tags) {
		return false
	}
	return c.target == Listeners || slices.ContainsFunc(l.Chains, c.concernsChain)
}

// has reports whether the listener stands for all tags that are wanted.
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

// concernsChain reports whether a change finds something to do in a filter chain.
func (c *Change) concernsChain(ch *draft.Chain) bool {
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
	return r != nil && is(c.match.routes, r.Name) && (c.op == Add || slices.ContainsFunc(r.VirtualHosts, func(h *routev3.VirtualHost) bool {
		return is(c.match.name, h.Name)
	}))
}

func (l listener) patch(e *editor, ch *Change) error {
	if ch.target == Listeners {
		return patchMessage(ch, &l.Message, l.Whole, l.SetWhole, "filterChains", "metadata")
	}
	for i, c := range l.Chains {
		if !ch.concernsChain(c) {
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

// changeRoutes returns a route configuration with other virtual hosts.
func changeRoutes(r *routev3.RouteConfiguration, ch *Change) (*routev3.RouteConfiguration, error) {
	r = proto.Clone(r).(*routev3.RouteConfiguration)
	switch ch.op {
	case Add:
		r.VirtualHosts = append(r.VirtualHosts, proto.Clone(ch.value.message).(*routev3.VirtualHost))
		return r, nil
	case Remove:
		r.VirtualHosts = slices.DeleteFunc(r.VirtualHosts, func(h *routev3.VirtualHost) bool { return is(ch.match.name, h.Name) })
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
