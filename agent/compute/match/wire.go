package match

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of envoy.config.listener.v3.Listener.
const (
	fieldFilterChains     = 3
	fieldListenerMetadata = 6
	fieldDefaultChain     = 25
	fieldChainMatcher     = 32
)

// withoutFields appends a message without some of its fields.
func withoutFields(b, body []byte, drop ...protowire.Number) ([]byte, error) {
	for len(body) > 0 {
		num, _, n := protowire.ConsumeField(body)
		if n < 0 {
			return b, protowire.ParseError(n)
		}
		if !slices.Contains(drop, num) {
			b = append(b, body[:n]...)
		}
		body = body[n:]
	}
	return b, nil
}
