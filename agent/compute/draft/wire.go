package draft

import (
	"bytes"
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// Sealed resources are edited in their wire form: fields are replaced, added, or removed without
// decoding messages.

// Field numbers of the messages that are edited here.
const (
	fieldAnyURL, fieldAnyValue = 1, 2

	fieldListenerName                                                                  = 1
	fieldListenerAddress, fieldListenerChains, fieldListenerDefault, fieldListenerLogs = 2, 3, 25, 22

	fieldSocketAddress, fieldSocketHost, fieldSocketPort = 1, 2, 3 // Address, SocketAddress
	fieldListenerMore                                    = 33      // additional addresses

	fieldChainFilters    = 3 // envoy.config.listener.v3.FilterChain
	fieldFilterName      = 1 // network filter and HTTP filter
	fieldFilterConfig    = 4 // network filter and HTTP filter
	fieldManagerRDS      = 3 // HttpConnectionManager
	fieldManagerFilters  = 5
	fieldManagerLogs     = 13
	fieldTCPLogs         = 5 // TcpProxy
	fieldRDSName         = 2 // Rds
	fieldLoggerConfig    = 4 // AccessLog
	fieldLogPath         = 1 // FileAccessLog
	fieldRoutesName      = 1 // RouteConfiguration
	fieldRoutesPerFilter = 16
	fieldPerRouteRBAC    = 2  // RBACPerRoute
	fieldHTTPOptions     = 36 // Cluster
	fieldCommonTLS       = 1  // both TLS contexts
	fieldTLSParams       = 1  // CommonTlsContext

	// Members of the oneof of HttpProtocolOptions.
	fieldExplicitVersion, fieldAutoVersion = 3, 5
)

// Type URLs of packed messages.
const (
	rbacURL         = typePrefix + "envoy.extensions.filters.http.rbac.v3.RBAC"
	rbacPerRouteURL = typePrefix + "envoy.extensions.filters.http.rbac.v3.RBACPerRoute"
	fileLogURL      = typePrefix + "envoy.extensions.access_loggers.file.v3.FileAccessLog"
)

// fieldEdits are functions that edit the fields of a message, by number. Each returns the new
// value, and false to remove the field.
type fieldEdits map[protowire.Number]func(value []byte) (next []byte, stays bool)

// apply returns a message with edited fields. It returns b itself if nothing changes or b is not a
// message.
func (edits fieldEdits) apply(b []byte) []byte {
	out := make([]byte, 0, len(b))
	whole := eachField(b, func(n protowire.Number, field, value []byte) {
		next, stays := value, true
		if edit := edits[n]; edit != nil && value != nil {
			next, stays = edit(value)
		}
		switch {
		case !stays:
		case bytes.Equal(next, value):
			out = append(out, field...)
		default:
			out = protowire.AppendBytes(protowire.AppendTag(out, n, protowire.BytesType), next)
		}
	})
	if !whole || bytes.Equal(out, b) {
		return b
	}
	return out
}

// inside applies the edits to a message that is the value of a field.
func (edits fieldEdits) inside(value []byte) ([]byte, bool) { return edits.apply(value), true }

// eachField calls f for each field of a message with the encoded field and its value, which is nil
// if it is not length-delimited. It returns false for an invalid message.
func eachField(b []byte, f func(n protowire.Number, field, value []byte)) bool {
	for len(b) > 0 {
		n, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(n, typ, b[tag:])
		if size < 0 {
			return false
		}
		var value []byte
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[tag:])
			value = value[:len(value):len(value)]
		}
		f(n, b[:tag+size], value)
		b = b[tag+size:]
	}
	return true
}

// isMessage reports whether b is the wire form of a message.
func isMessage(b []byte) bool { return eachField(b, func(protowire.Number, []byte, []byte) {}) }

// valuesAt returns the values of the fields at a path of field numbers, in order.
func valuesAt(b []byte, path ...protowire.Number) (out [][]byte) {
	eachField(b, func(n protowire.Number, _, value []byte) {
		switch {
		case n != path[0] || value == nil:
		case len(path) == 1:
			out = append(out, value)
		default:
			out = append(out, valuesAt(value, path[1:]...)...)
		}
	})
	return out
}

// SameAddresses reports whether two forms of a resource are bound to the same addresses. Only
// listeners are bound.
func SameAddresses(id ResourceID, a, b *Resource) bool {
	return id.TypeURL != TypeListener || slices.EqualFunc(addressesOf(a), addressesOf(b), bytes.Equal)
}

func addressesOf(r *Resource) [][]byte {
	return append(valuesAt(r.Body(), fieldListenerAddress), valuesAt(r.Body(), fieldListenerMore)...)
}

// textAt returns the string at a path of field numbers, "" for none.
func textAt(b []byte, path ...protowire.Number) string { return string(last(valuesAt(b, path...))) }

// last returns the effective value of a field that occurs several times.
func last(values [][]byte) []byte {
	if len(values) == 0 {
		return nil
	}
	return values[len(values)-1]
}

// unpackAs returns the message in an Any with a type URL, nil for another type URL.
func unpackAs(packed []byte, url string) []byte {
	if textAt(packed, fieldAnyURL) != url {
		return nil
	}
	return append([]byte{}, last(valuesAt(packed, fieldAnyValue))...)
}

// appendPacked appends an entry of a map from names to Any.
func appendPacked(b []byte, field protowire.Number, name, url string, message []byte) []byte {
	packed := protowire.AppendString(protowire.AppendTag(nil, fieldAnyURL, protowire.BytesType), url)
	packed = protowire.AppendBytes(protowire.AppendTag(packed, fieldAnyValue, protowire.BytesType), message)
	return append(appendEntry(b, field, name, len(packed)), packed...)
}

// WithTLSParams returns a packed TLS context with other parameters, or a itself if it has no common
// TLS context.
func WithTLSParams(a *anypb.Any, p *tlsv3.TlsParameters) (*anypb.Any, error) {
	params, err := appendMessage(nil, p, strict)
	if err != nil || len(valuesAt(a.GetValue(), fieldCommonTLS)) == 0 {
		return a, err
	}
	first := protowire.AppendBytes(protowire.AppendTag(nil, fieldTLSParams, protowire.BytesType), params)
	rest := fieldEdits{fieldTLSParams: func(value []byte) ([]byte, bool) { return value, false }}
	common := func(value []byte) ([]byte, bool) { return append(first, rest.apply(value)...), true }
	return &anypb.Any{TypeUrl: a.TypeUrl, Value: fieldEdits{fieldCommonTLS: common}.apply(a.Value)}, nil
}

// packedUnder returns the Any values of a map field by key.
func packedUnder(b []byte, field protowire.Number) map[string][]byte {
	out := map[string][]byte{}
	for _, entry := range valuesAt(b, field) {
		out[textAt(entry, fieldKey)] = last(valuesAt(entry, fieldValue))
	}
	return out
}

// edited returns a resource in another wire form with the same references, or r itself if the bytes
// are equal.
func edited(r *Resource, body []byte) *Resource {
	if bytes.Equal(body, r.Body()) {
		return r
	}
	return r.Edited(versionOfBody(body), slices.Clip(body))
}
