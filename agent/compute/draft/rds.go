package draft

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
)

// inline is the name for routes that are part of their connection manager.
const inline = ""

// Field numbers of the connection manager and of its message Rds.
const (
	fieldRDS             = 3
	fieldRouteConfigName = 2
)

// rdsSource is the encoded source of routes in the message Rds. A listener waits for its routes
// without a timeout: its previous form stays active until then, and a new listener accepts no
// connections that it could only answer with 404. Envoy also stops waiting when it rejects the
// routes.
var rdsSource = field(&hcmv3.Rds{ConfigSource: &corev3.ConfigSource{
	ResourceApiVersion:    corev3.ApiVersion_V3,
	ConfigSourceSpecifier: ADS.ConfigSourceSpecifier,
	InitialFetchTimeout:   &durationpb.Duration{},
}})

// appendRDS appends the connection manager's field for routes that are served under a name.
func appendRDS(b []byte, name string) []byte {
	from := len(b)
	b = append(b, rdsSource...)
	b = protowire.AppendTag(b, fieldRouteConfigName, protowire.BytesType)
	b = protowire.AppendString(b, name)
	return asField(b, from, fieldRDS)
}

// appendRoutes appends the wire form of the routes under a name. It changes the message
// temporarily.
func (h *HTTP) appendRoutes(b []byte, name string, how validation) ([]byte, error) {
	own := h.Routes.Name
	h.Routes.Name = name
	b, err := appendMessage(b, h.Routes, how)
	h.Routes.Name = own
	if err == nil && h.Headers != nil {
		b = append(b, h.Headers.field...)
	}
	return b, err
}

// escapeListener escapes the name of a listener in the name of routes, where it ends at the first
// #.
var escapeListener = strings.NewReplacer("%", "%25", "#", "%23")

// routeNames appends, for each chain, the name under which its routes are served, or [inline] for a
// chain without routes. The name is that of the listener for a chain that accepts all connections.
// Otherwise it is LISTENER#CHAIN, where CHAIN is the name of the chain, or its match if it has no
// name. So names are unique in a proxy, and do not change when other chains are added or removed.
func (l *Listener) routeNames(names []string) []string {
	listener := ""
	for i, c := range l.Chains {
		name := inline
		if c.HTTP != nil && c.HTTP.Routes != nil {
			if listener == "" {
				listener = escapeListener.Replace(l.Message.GetName())
			}
			name = listener
			if key := c.key(); key != "" {
				name += "#" + key
			}
			// A name that ends in /* would subscribe to all names with the prefix.
			for n := i; name == "" || strings.HasSuffix(name, "/*") || slices.Contains(names, name); n++ {
				name += "#" + strconv.Itoa(n)
			}
		}
		names = append(names, name)
	}
	return names
}

// key identifies the chain in its listener: its name, or the protocols that it matches if it has no
// name.
func (c *Chain) key() string {
	m := c.Message.GetFilterChainMatch()
	if name := c.Message.GetName(); name != "" || m == nil {
		return name
	}
	return strings.Join(append([]string{m.TransportProtocol}, m.ApplicationProtocols...), ",")
}
