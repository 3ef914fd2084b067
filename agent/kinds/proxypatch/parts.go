package proxypatch

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// takeApart moves the parts of a value that a draft keeps apart to where they are used. tree is the value as written.
func (c *change) takeApart(v *resource.Validator, tree any) bool {
	ok := true
	switch m := c.value.message.(type) {
	case *clusterv3.Cluster:
		a := m.TypedExtensionProtocolOptions[draft.NameHTTPOptions]
		if c.op == Patch && a != nil {
			delete(m.TypedExtensionProtocolOptions, draft.NameHTTPOptions)
			ok = c.unpack(v.Field("typedExtensionProtocolOptions").Key(draft.NameHTTPOptions), a,
				member(member(tree, "typedExtensionProtocolOptions", "typed_extension_protocol_options"), draft.NameHTTPOptions))
		}
	case *listenerv3.Listener:
		if c.op == Patch {
			c.chains, m.FilterChains = m.FilterChains, nil
		}
	case *listenerv3.Filter:
		c.filter = draft.Extension{Name: m.Name, Packed: m.GetTypedConfig(), Discovery: m.GetConfigDiscovery()}
		ok = c.configured(v, m.GetTypedConfig(), tree, false)
	case *hcmv3.HttpFilter:
		c.filter = draft.NewHTTPFilter(m)
		ok = c.configured(v, m.GetTypedConfig(), tree, m.Disabled || m.IsOptional)
	}
	c.packs = packs(c.value.message.ProtoReflect())
	return ok
}

// configured takes the configuration of a filter. One that is added must have it, and so must one that is merged
// unless it says something else.
func (c *change) configured(v *resource.Validator, a *anypb.Any, tree any, other bool) bool {
	switch {
	case a != nil:
		return c.unpack(v.Field("typedConfig"), a, member(tree, "typedConfig", "typed_config"))
	case c.op == Patch && !other:
		v.Field("typedConfig").Faultf("the configuration is missing: there is nothing to merge")
		return false
	case c.op != Patch && c.filter.Discovery == nil:
		v.Field("typedConfig").Faultf("the configuration is missing: Envoy takes no filter without one")
		return false
	}
	return true
}

func (c *change) unpack(v *resource.Validator, a *anypb.Any, tree any) bool {
	m, err := a.UnmarshalNew()
	if err != nil {
		v.Faultf("%s: %s", a.TypeUrl, plainError(err))
		return false
	}
	c.config = parsed{message: m, zeros: zeros(tree, m.ProtoReflect())}
	return true
}

// member returns a member of an object under one of its names, nil for none.
func member(tree any, names ...string) any {
	o, _ := tree.(map[string]any)
	for _, n := range names {
		if v, ok := o[n]; ok {
			return v
		}
	}
	return nil
}

// packs reports whether a message holds packed messages.
func packs(m protoreflect.Message) bool {
	if _, ok := m.Interface().(*anypb.Any); ok {
		return true
	}
	found := false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
					found = packs(e.Message())
					return !found
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = packs(v.List().Get(i).Message())
			}
		default:
			found = packs(v.Message())
		}
		return !found
	})
	return found
}
