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

// inline stands for the name of routes that are a part of their connection manager.
const inline = ""

// Field numbers of the connection manager, and of its message Rds.
const (
	fieldRDS             = 3
	fieldRouteConfigName = 2
)

// rdsSource is where routes come from, as field of the message Rds. A listener waits for its routes
// however long that takes: until then the form of it that Envoy has goes on, and a new one takes no
// connections that it could only answer with 404. Routes that Envoy rejects end the wait too.
var rdsSource = field(&hcmv3.Rds{ConfigSource: &corev3.ConfigSource{
	ResourceApiVersion:    corev3.ApiVersion_V3,
	ConfigSourceSpecifier: ADS.ConfigSourceSpecifier,
	InitialFetchTimeout:   &durationpb.Duration{},
}})

// appendRDS appends the field of a connection manager which says that its routes are served under a
// name.
func appendRDS(b []byte, name string) []byte {
	from := len(b)
	b = append(b, rdsSource...)
	b = protowire.AppendTag(b, fieldRouteConfigName, protowire.BytesType)
	b = protowire.AppendString(b, name)
	return asField(b, from, fieldRDS)
}

// appendRoutes appends the wire form of the routes under a name. What it borrows the message for is
// put back.
func (h *HTTP) appendRoutes(b []byte, name string, how rigour) ([]byte, error) {
	own := h.Routes.Name
	h.Routes.Name = name
	b, err := appendMessage(b, h.Routes, how)
	h.Routes.Name = own
	if err == nil && h.Headers != nil {
		b = append(b, h.Headers.field...)
	}
	return b, err
}

// escapeListener makes sure that the part of a listener in the name of routes ends at the first #.
var escapeListener = strings.NewReplacer("%", "%25", "#", "%23")

// routeNames appends, for each chain, the name under which its routes are served, and [inline] for
// a chain without routes. It is the name of the listener for the chain that takes all connections,
// else LISTENER#CHAIN, where CHAIN is the name of the chain, or what it matches where it has none.
// So names neither move to another chain when some come or go, nor are two of a proxy the same.
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
			// A name that ends in /* would stand for all names below it.
			for n := i; name == "" || strings.HasSuffix(name, "/*") || slices.Contains(names, name); n++ {
				name += "#" + strconv.Itoa(n)
			}
		}
		names = append(names, name)
	}
	return names
}

// key tells the chain from the others of its listener: its name or, without one, the protocols that
// it takes.
func (c *Chain) key() string {
	m := c.Message.GetFilterChainMatch()
	if name := c.Message.GetName(); name != "" || m == nil {
		return name
	}
	return strings.Join(append([]string{m.TransportProtocol}, m.ApplicationProtocols...), ",")
}
