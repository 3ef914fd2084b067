package draft

import (
	"fmt"
	"maps"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/fieldrule"
)

// typePrefix precedes the name of a message in a type URL.
const typePrefix = "type.googleapis.com/"

// Type URLs of the terminal filters and of HTTP options, and the number of the connection manager's
// field for inline routes.
const (
	hcmURL           = typePrefix + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	tcpURL           = typePrefix + "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
	httpOptionsURL   = typePrefix + NameHTTPOptions
	fieldRouteConfig = 4
)

// validation selects whether messages are validated by the rules of Envoy's API before they are
// encoded.
type validation bool

const (
	strict validation = true
	loose  validation = false // so that the check can report and withhold an invalid message
)

// Pack returns the config of the extension as an Any.
func (e Extension) Pack() (*anypb.Any, error) { return e.pack(strict) }

func (e Extension) pack(how validation) (*anypb.Any, error) {
	if e.Message == nil {
		return e.Packed, nil
	}
	body, err := appendMessage(nil, e.Message, how)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	return &anypb.Any{TypeUrl: typePrefix + string(e.Message.ProtoReflect().Descriptor().FullName()), Value: body}, nil
}

// Pack returns the connection manager as an Any, including filters and inline routes.
func (h *HTTP) Pack() (*anypb.Any, error) {
	body, err := h.append(make([]byte, 0, 1024), inline, strict)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", NameHCM, err)
	}
	return &anypb.Any{TypeUrl: hcmURL, Value: body}, nil
}

// inlineRoutes satisfies the validation rules in place of routes that are encoded separately or
// served by RDS.
var inlineRoutes = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}}

// inlineField is the wire form of inlineRoutes.
var inlineField = protowire.AppendBytes(protowire.AppendTag(nil, fieldRouteConfig, protowire.BytesType), nil)

// append appends the wire form with inline routes, or with the name rds under which the routes are
// served. It changes the message temporarily, so the draft can be edited afterwards.
func (h *HTTP) append(b []byte, rds string, how validation) ([]byte, error) {
	addresses, routes := h.Message.InternalAddressConfig, h.Message.RouteSpecifier
	defer func() {
		h.Message.InternalAddressConfig, h.Message.RouteSpecifier, h.Message.HttpFilters = addresses, routes, nil
	}()
	var shared [2][]byte
	if h.Message.InternalAddressConfig == InternalAddresses {
		h.Message.InternalAddressConfig, shared[0] = nil, internalField
	}
	switch {
	case sameFilters(h.Filters, PlainFilters):
		shared[1] = plainField
	case sameFilters(h.Filters, GRPCFilters):
		shared[1] = grpcField
	default:
		h.Message.HttpFilters = make([]*hcmv3.HttpFilter, len(h.Filters))
		for i, f := range h.Filters {
			a, err := f.pack(how)
			if err != nil {
				return b, err
			}
			h.Message.HttpFilters[i] = f.httpFilter(a)
		}
	}
	if h.Routes != nil {
		h.Message.RouteSpecifier = nil
	}
	from := len(b)
	b, err := marshal(b, h.Message)
	if err != nil {
		return b, err
	}
	if end := len(b); how == strict {
		if h.Routes != nil {
			h.Message.RouteSpecifier = inlineRoutes
			b = append(b, inlineField...)
		}
		if err := fieldrule.FirstEncoded(h.Message, b[from:]); err != nil {
			return b, err
		}
		b = b[:end]
	}
	from = len(b)
	switch {
	case h.Routes == nil:
	case rds != inline:
		b = appendRDS(b, rds)
	default:
		if b, err = h.appendRoutes(b, h.Routes.Name, how); err != nil {
			return b, err
		}
		b = asField(b, from, fieldRouteConfig)
	}
	for _, f := range shared {
		b = append(b, f...)
	}
	return b, nil
}

// asField turns the bytes from an index on into the value of a field.
func asField(b []byte, from int, n protowire.Number) []byte {
	var buffer [16]byte
	head := protowire.AppendVarint(protowire.AppendTag(buffer[:0], n, protowire.BytesType), uint64(len(b)-from))
	return slices.Insert(b, from, head...)
}

// sameFilters reports whether a list is a given shared list.
func sameFilters(a, b []Extension) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// httpFilter returns the filter with its packed config.
func (e Extension) httpFilter(a *anypb.Any) *hcmv3.HttpFilter {
	f := &hcmv3.HttpFilter{Name: e.Name, IsOptional: e.Optional, Disabled: e.Disabled}
	switch {
	case e.Discovery != nil:
		f.ConfigType = &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: e.Discovery}
	case a != nil:
		f.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: a}
	}
	return f
}

// Seal seals a single cluster. It fails if [Sealer.Add] would report a fault.
func (c *Cluster) Seal() (*Resource, error) {
	body, err := appendCluster(nil, c, strict)
	if err != nil {
		return nil, err
	}
	return NewResource(RankCluster, c.Message.GetName(), body), nil
}

// appendCluster appends the wire form of a cluster. It changes the message temporarily.
func appendCluster(b []byte, c *Cluster, how validation) ([]byte, error) {
	endpoints := c.Message.EdsClusterConfig
	defer func() {
		c.Message.EdsClusterConfig = endpoints
		if c.HTTP != nil {
			delete(c.Message.TypedExtensionProtocolOptions, NameHTTPOptions)
		}
	}()
	var shared [2][]byte
	switch {
	case c.HTTP == nil:
	case c.HTTP == HTTP1Options:
		shared[0] = http1Field
	case c.HTTP == HTTP2Options:
		shared[0] = http2Field
	default:
		a, err := Extension{Name: "HTTP options", Message: c.HTTP}.pack(how)
		if err != nil {
			return b, err
		}
		if c.Message.TypedExtensionProtocolOptions == nil {
			c.Message.TypedExtensionProtocolOptions = make(map[string]*anypb.Any, 1)
		}
		c.Message.TypedExtensionProtocolOptions[NameHTTPOptions] = a
	}
	if endpoints == EDS {
		c.Message.EdsClusterConfig, shared[1] = nil, edsField
	}
	from := len(b)
	b, err := marshal(b, c.Message)
	if err != nil {
		return b, err
	}
	for _, f := range shared {
		b = append(b, f...)
	}
	if how == strict {
		c.Message.EdsClusterConfig = endpoints
		err = fieldrule.FirstEncoded(c.Message, b[from:])
	}
	return b, err
}

// appendListener appends the wire form of a listener. rds has the name under which RDS serves the
// routes of each chain; nil encodes all routes inline. scratch is a buffer for use until the
// function returns. The messages are changed temporarily.
func appendListener(b []byte, l *Listener, rds []string, scratch *[]byte, how validation) ([]byte, error) {
	defer func() {
		l.Message.FilterChains = nil
		for _, c := range l.Chains {
			if c.Message != nil {
				c.Message.Filters = nil
			}
		}
	}()
	*scratch = (*scratch)[:0]
	l.Message.FilterChains = l.only[:0]
	for i, c := range l.Chains {
		if c.Message == nil {
			c.Message = &listenerv3.FilterChain{}
		}
		name := inline
		if rds != nil {
			name = rds[i]
		}
		if err := packChain(c, name, scratch, how); err != nil {
			return b, fmt.Errorf("filter chain %d %q: %w", i, c.Message.GetName(), err)
		}
		l.Message.FilterChains = append(l.Message.FilterChains, c.Message)
	}
	b, err := appendMessage(b, l.Message, how)
	// Envoy replaces a listener whose metadata changes, and drains all its connections. The
	// metadata of an inbound is not used.
	if served := rds != nil; err == nil && l.Tags != nil && !(served && l.Kind == Inbound) {
		b = appendListenerTags(b, l.Tags)
	}
	return b, err
}

// packedFilter holds the messages around a packed network filter in one allocation.
type packedFilter struct {
	message listenerv3.Filter
	config  listenerv3.Filter_TypedConfig
	packed  anypb.Any
}

func (f *packedFilter) set(name string, a *anypb.Any) *listenerv3.Filter {
	f.config.TypedConfig = a
	f.message.Name, f.message.ConfigType = name, &f.config
	return &f.message
}

// filter returns the network filter with its packed config.
func (e Extension) filter(a *anypb.Any) *listenerv3.Filter {
	switch {
	case e.Discovery != nil:
		return &listenerv3.Filter{Name: e.Name, ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: e.Discovery}}
	case a == nil:
		return &listenerv3.Filter{Name: e.Name}
	}
	return new(packedFilter).set(e.Name, a)
}

func packChain(c *Chain, rds string, scratch *[]byte, how validation) error {
	c.Message.Filters = c.only[:0]
	for _, e := range c.Network {
		a, err := e.pack(how)
		if err != nil {
			return err
		}
		c.Message.Filters = append(c.Message.Filters, e.filter(a))
	}
	from := len(*scratch)
	name, url := NameHCM, hcmURL
	var err error
	switch {
	case c.HTTP != nil:
		*scratch, err = c.HTTP.append(*scratch, rds, how)
	case c.TCP != nil:
		name, url = NameTCPProxy, tcpURL
		*scratch, err = appendMessage(*scratch, c.TCP, how)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.last.packed.TypeUrl, c.last.packed.Value = url, (*scratch)[from:]
	c.Message.Filters = append(c.Message.Filters, c.last.set(name, &c.last.packed))
	return nil
}

// appendMessage appends the deterministic wire form of a message and validates it.
func appendMessage(b []byte, m proto.Message, how validation) ([]byte, error) {
	from := len(b)
	b, err := marshal(b, m)
	if err == nil && how == strict {
		err = fieldrule.FirstEncoded(m, b[from:])
	}
	return b, err
}

func marshal(b []byte, m proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m)
}

// Field numbers of the messages that are encoded here.
const (
	fieldListenerMetadata = 6 // envoy.config.listener.v3.Listener
	fieldFilterMetadata   = 1 // envoy.config.core.v3.Metadata
	fieldStructFields     = 1 // google.protobuf.Struct
	fieldStringValue      = 3 // google.protobuf.Value
	fieldKey              = 1 // map entry
	fieldValue            = 2
)

// tagsNamespace is the key of a listener's metadata for its tags.
const tagsNamespace = "io.kuma.tags"

// AppendTag appends a string entry of a google.protobuf.Struct. If the caller appends entries in
// the order of their keys, the result equals the deterministic encoding of the protobuf library, at
// a fraction of the cost of building the messages.
func AppendTag(b []byte, key, value string) []byte {
	b = appendEntry(b, fieldStructFields, key, protowire.SizeTag(fieldStringValue)+protowire.SizeBytes(len(value)))
	b = protowire.AppendTag(b, fieldStringValue, protowire.BytesType)
	return protowire.AppendString(b, value)
}

// AppendNamespace appends one entry of the filter metadata of an envoy.config.core.v3.Metadata.
func AppendNamespace(b []byte, namespace string, tags []byte) []byte {
	return append(appendEntry(b, fieldFilterMetadata, namespace, len(tags)), tags...)
}

// appendEntry appends a map entry up to its value, which has the given size in bytes.
func appendEntry(b []byte, field protowire.Number, key string, value int) []byte {
	n := protowire.SizeTag(fieldKey) + protowire.SizeBytes(len(key)) + protowire.SizeTag(fieldValue) +
		protowire.SizeBytes(value)
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(value))
}

// appendListenerTags appends the metadata of a listener to its wire form. Decoders merge it with
// metadata that the message already has, as the wire format defines.
func appendListenerTags(b []byte, tags map[string]string) []byte {
	var buffer [8]string
	keys := slices.AppendSeq(buffer[:0], maps.Keys(tags))
	slices.Sort(keys)
	scratch := make([]byte, 0, 512)
	for _, k := range keys {
		scratch = AppendTag(scratch, k, tags[k])
	}
	n := len(scratch)
	scratch = AppendNamespace(scratch, tagsNamespace, scratch[:n])
	b = protowire.AppendTag(b, fieldListenerMetadata, protowire.BytesType)
	return protowire.AppendBytes(b, scratch[n:])
}
