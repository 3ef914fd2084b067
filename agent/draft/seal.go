package draft

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Fault is a resource that could not be sealed. The others of the draft are not harmed.
type Fault struct {
	Type string // type URL
	Name string
	Err  error
}

// Error names the resource and what is wrong with it.
func (f Fault) Error() string { return fmt.Sprintf("%s %q: %v", shortType(f.Type), f.Name, f.Err) }

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// Seal packs, validates, sorts and hashes a draft. Resources whose message breaks Envoy's own field rules (those that
// its API carries as validation annotations) are left out and returned as faults. Of several resources with one name
// the first is kept. intern, when not nil, may replace a resource by an equal one that is already in use.
//
// The draft must not be used afterwards.
func Seal(d *Draft, intern func(typeURL string, r *Resource) *Resource) (*Sealed, []Fault) {
	s := &sealer{intern: intern, out: &Sealed{Resources: d.Ready}}
	rc, rl, re, rr := Rank(TypeCluster), Rank(TypeListener), Rank(TypeEndpoint), Rank(TypeRoute)
	s.grow(rc, len(d.Clusters))
	s.grow(rl, len(d.Listeners))
	s.grow(re, len(d.Endpoints))
	for _, c := range d.Clusters {
		s.add(rc, c.Message.GetName(), c.Message, packCluster(c))
	}
	for _, l := range d.Listeners {
		s.add(rl, l.Message.GetName(), l.Message, packListener(l))
	}
	for _, e := range d.Endpoints {
		s.add(re, e.GetClusterName(), e, nil)
	}
	for _, r := range d.Routes {
		s.add(rr, r.GetName(), r, nil)
	}
	for rank := range s.out.Resources {
		s.out.Resources[rank], s.out.Versions[rank] = Order(s.out.Resources[rank])
	}
	return s.out, s.faults
}

// SealOne seals a single message.
func SealOne(name string, m proto.Message) (*Resource, error) {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return &Resource{Name: name, Version: hex.EncodeToString(sum[:16]), Body: body}, nil
}

// Order sorts a list of sealed resources by name, drops later duplicates, and returns it with the hash over its names
// and versions. The list is sorted in place.
func Order(list []*Resource) ([]*Resource, string) {
	byName := func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(list, byName) {
		slices.SortStableFunc(list, byName)
	}
	list = slices.CompactFunc(list, func(a, b *Resource) bool { return a.Name == b.Name })
	h := sha256.New()
	b := make([]byte, 0, 4096)
	for _, r := range list {
		b = append(b, r.Name...)
		b = append(b, 0)
		b = append(b, r.Version...)
		if len(b) > 4000 {
			h.Write(b)
			b = b[:0]
		}
	}
	h.Write(b)
	return list, hex.EncodeToString(h.Sum(nil)[:16])
}

type sealer struct {
	intern func(string, *Resource) *Resource
	out    *Sealed
	faults []Fault
}

func (s *sealer) grow(rank, n int) {
	s.out.Resources[rank] = slices.Grow(slices.Clip(s.out.Resources[rank]), n)
}

func (s *sealer) add(rank int, name string, m proto.Message, err error) {
	var r *Resource
	if err == nil {
		r, err = SealOne(name, m)
	}
	if err != nil {
		s.faults = append(s.faults, Fault{Type: Types[rank], Name: name, Err: err})
		return
	}
	if s.intern != nil {
		r = s.intern(Types[rank], r)
	}
	s.out.Resources[rank] = append(s.out.Resources[rank], r)
}

func pack(m proto.Message) (*anypb.Any, error) {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Value: body}, nil
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
	var a *anypb.Any
	switch c.HTTP {
	case HTTP1Options:
		a = http1Options
	case HTTP2Options:
		a = http2Options
	default:
		var err error
		if a, err = pack(c.HTTP); err != nil {
			return fmt.Errorf("HTTP options: %w", err)
		}
	}
	if c.Message.TypedExtensionProtocolOptions == nil {
		c.Message.TypedExtensionProtocolOptions = make(map[string]*anypb.Any, 1)
	}
	c.Message.TypedExtensionProtocolOptions[NameHTTPOptions] = a
	return nil
}

func packListener(l *Listener) error {
	chains := make([]*listenerv3.FilterChain, 0, len(l.Chains))
	for i, c := range l.Chains {
		if c.Message == nil {
			c.Message = &listenerv3.FilterChain{}
		}
		if err := packChain(c); err != nil {
			return fmt.Errorf("filter chain %d %q: %w", i, c.Message.GetName(), err)
		}
		chains = append(chains, c.Message)
	}
	if len(chains) > 0 {
		l.Message.FilterChains = chains
	}
	return nil
}

func packChain(c *Chain) error {
	filters := make([]*listenerv3.Filter, 0, len(c.Network)+1)
	add := func(e Extension) error {
		a, err := e.Pack()
		if err != nil {
			return err
		}
		filters = append(filters, &listenerv3.Filter{Name: e.Name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: a}})
		return nil
	}
	for _, e := range c.Network {
		if err := add(e); err != nil {
			return err
		}
	}
	switch {
	case c.HTTP != nil:
		if err := PackHTTP(c.HTTP); err != nil {
			return err
		}
		if err := add(Extension{Name: NameHCM, Message: c.HTTP.Message}); err != nil {
			return err
		}
	case c.TCP != nil:
		if err := add(Extension{Name: NameTCPProxy, Message: c.TCP}); err != nil {
			return err
		}
	}
	c.Message.Filters = filters
	return nil
}

// PackHTTP puts the filters and the inline routes into the connection manager's message.
func PackHTTP(h *HTTP) error {
	h.Message.HttpFilters = make([]*hcmv3.HttpFilter, 0, len(h.Filters))
	for _, f := range h.Filters {
		a, err := f.Pack()
		if err != nil {
			return err
		}
		h.Message.HttpFilters = append(h.Message.HttpFilters, &hcmv3.HttpFilter{Name: f.Name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: a}})
	}
	if h.Routes != nil {
		h.Message.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: h.Routes}
	}
	return nil
}
