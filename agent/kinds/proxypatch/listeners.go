package proxypatch

import (
	"cmp"
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// tagsNamespace is where the metadata of a listener says what it stands for.
const tagsNamespace = "io.kuma.tags"

// listener returns what the plans make of a listener from a step on, nil when one of them removes it.
func (e *editor) listener(l *draft.Listener, s step) *draft.Listener {
	removed := false
	e.from(s, listeners, l.Message.GetName(), func(p *plan, changes []*change) {
		if removed {
			return
		}
		work := l
		var last *change
		for _, ch := range changes {
			if !ch.concerns(work) {
				continue
			}
			if ch.target == listeners && ch.op == Remove {
				removed = true
				return
			}
			if work == l {
				work = l.Copy()
			}
			last = ch
			if err := e.patchAny(work, ch); err != nil {
				e.fault(p, ch, listenerStays(l, ch), err)
				return
			}
		}
		if last == nil {
			return
		}
		if err := goodListener(work, l); err != nil {
			e.fault(p, last, listenerStays(l, last), err)
			return
		}
		l = work
	})
	if removed {
		return nil
	}
	return l
}

// concerns reports whether a change finds something to do in a listener.
func (c *change) concerns(l *draft.Listener) bool {
	name := c.match.listener
	if c.target == listeners {
		name = c.match.name
	}
	if c.target == clusters || c.target == resources || c.target == listeners && c.op == Add ||
		!is(name, l.Message.GetName()) || !is(c.match.origin, l.MadeBy()) || !c.match.hasTags(l) {
		return false
	}
	switch c.target {
	case networkFilters:
		return slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool {
			return c.op == AddFirst || c.op == AddLast || findFilter(ch, c.match.name) >= 0
		})
	case httpFilters:
		return slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool {
			return ch.HTTP != nil && (c.op == AddFirst || c.op == AddLast || findExtension(ch.HTTP.Filters, c.match.name) >= 0)
		})
	case virtualHosts:
		return slices.ContainsFunc(l.Chains, func(ch *draft.Chain) bool {
			return ch.HTTP != nil && c.concernsRoutes(ch.HTTP.Routes)
		})
	}
	return true
}

// hasTags reports whether a listener stands for all tags that are wanted.
func (m *match) hasTags(l *draft.Listener) bool {
	for k, want := range m.tags {
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

// listenerStays says what stays, in words that are the same for all listeners that a change is about, since equal
// warnings are kept once.
func listenerStays(l *draft.Listener, ch *change) string {
	if ch.match.listener != nil || ch.target == listeners && ch.match.name != nil {
		return fmt.Sprintf("the listener %q stays", l.Message.GetName())
	}
	return cmp.Or(l.MadeBy(), "other") + " listeners stay"
}

// patchAny makes one change in a listener, of which it replaces messages and lists.
func (e *editor) patchAny(l *draft.Listener, ch *change) error {
	if ch.target == listeners {
		return patchListener(l, ch)
	}
	for i, c := range l.Chains {
		var err error
		switch {
		case ch.target == networkFilters:
			err = e.changeChain(c, ch)
		case c.HTTP == nil:
		case ch.target == httpFilters:
			c.HTTP.Filters, err = e.changeFilters(c.HTTP.Filters, ch)
		case ch.concernsRoutes(c.HTTP.Routes):
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

func patchListener(l *draft.Listener, ch *change) error {
	if ch.patch != nil && ch.patch.touches("filterChains", "metadata") {
		m, err := l.Whole()
		if err != nil {
			return err
		}
		after, err := ch.patch.apply(m)
		if err != nil {
			return err
		}
		return l.SetWhole(after.(*listenerv3.Listener))
	}
	if ch.patch != nil {
		after, err := ch.patch.apply(l.Message)
		if err == nil {
			l.Message = after.(*listenerv3.Listener)
		}
		return err
	}
	l.Message = proto.Clone(l.Message).(*listenerv3.Listener)
	if over, _ := ch.value.message.(*listenerv3.Listener); over.GetMetadata() != nil {
		foldTags(l)
	}
	if err := merge(l.Message, ch.value); err != nil {
		return err
	}
	if err := broken(l.Message, ch.packs); err != nil {
		return err
	}
	for _, fc := range ch.chains {
		c, err := draft.NewChain(proto.Clone(fc).(*listenerv3.FilterChain))
		if err != nil {
			return err
		}
		l.Chains = append(slices.Clip(l.Chains), c)
	}
	return nil
}

// foldTags puts the tags of a listener where its message has them.
func foldTags(l *draft.Listener) {
	if l.Tags == nil {
		return
	}
	tags := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(l.Tags))}
	for k, v := range l.Tags {
		tags.Fields[k] = structpb.NewStringValue(v)
	}
	if l.Message.Metadata == nil {
		l.Message.Metadata = &corev3.Metadata{}
	}
	if l.Message.Metadata.FilterMetadata == nil {
		l.Message.Metadata.FilterMetadata = map[string]*structpb.Struct{}
	}
	l.Message.Metadata.FilterMetadata[tagsNamespace] = tags
	l.Tags = nil
}

// goodListener returns what is wrong with a listener after patching, where it was not wrong before.
func goodListener(l, before *draft.Listener) error {
	if l.Message.GetName() != before.Message.GetName() {
		return fmt.Errorf("the name becomes %q: a patch cannot rename", l.Message.GetName())
	}
	return firstNew(func(v *resource.Validator) { checkListener(v, l) }, func(v *resource.Validator) { checkListener(v, before) })
}

// concernsRoutes reports whether a change of virtual hosts finds something to do in a route configuration.
func (c *change) concernsRoutes(r *routev3.RouteConfiguration) bool {
	return r != nil && is(c.match.routes, r.Name) && (c.op == Add || slices.ContainsFunc(r.VirtualHosts, func(h *routev3.VirtualHost) bool {
		return is(c.match.name, h.Name)
	}))
}

// changeRoutes returns a route configuration with other virtual hosts.
func changeRoutes(r *routev3.RouteConfiguration, ch *change) (*routev3.RouteConfiguration, error) {
	r = proto.Clone(r).(*routev3.RouteConfiguration)
	if ch.op == Add {
		r.VirtualHosts = append(r.VirtualHosts, proto.Clone(ch.value.message).(*routev3.VirtualHost))
		return r, nil
	}
	if ch.op == Remove {
		r.VirtualHosts = slices.DeleteFunc(r.VirtualHosts, func(h *routev3.VirtualHost) bool { return is(ch.match.name, h.Name) })
		return r, nil
	}
	for i, h := range r.VirtualHosts {
		if !is(ch.match.name, h.Name) {
			continue
		}
		if ch.patch != nil {
			after, err := ch.patch.apply(h)
			if err != nil {
				return nil, fmt.Errorf("virtual host %q: %w", h.Name, err)
			}
			r.VirtualHosts[i] = after.(*routev3.VirtualHost)
			continue
		}
		err := merge(h, ch.value)
		if err == nil {
			err = broken(h, ch.packs)
		}
		if err != nil {
			return nil, fmt.Errorf("virtual host %q: %w", h.Name, err)
		}
	}
	return r, nil
}
