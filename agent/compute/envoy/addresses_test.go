package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
)

// TestAddressesThatMove checks that an update can move an address to another listener only if it
// removes the listener that uses it. Envoy compares an address with those of all active listeners,
// so two listeners can never swap addresses.
func TestAddressesThatMove(t *testing.T) {
	listeners := func(words string) *envoy.Snapshot {
		var list []proto.Message
		for _, w := range strings.Fields(words) {
			var name string
			var port uint32
			if _, err := fmt.Sscanf(w, "%1s%d", &name, &port); err != nil {
				t.Fatal(err)
			}
			list = append(list, &listenerv3.Listener{
				Name: name, Address: address("10.0.0.1", port),
				FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{tcpProxy("c")}}},
			})
		}
		list = append(list, originalDst("c"))
		return snapshot(t, list...)
	}
	for _, c := range []struct{ prev, next, rejected, why string }{
		{"a1 b2", "a2 b1", "a b", "with this change, and Envoy assigns it"},
		{"a1 b2", "a2 b3", "a", "with this change, and Envoy assigns it"},
		{"a1 b2", "a3 b1", "b", "with this change, and Envoy assigns it"},
		{"a1", "a2 b1", "b", "with this change, and Envoy assigns it"},
		{"a1 b2", "a2", "", ""},
		{"b2", "a2", "", ""},
		{"a1 b2", "a1 b1", "b", "already"},
		{"a1 b2", "a2 b2", "a", "already"},
		{"", "a1 b1", "b", "already"},
		{"a1 b2 c3", "a2 b3 c1", "a b c", "with this change, and Envoy assigns it"},
	} {
		var rejected []string
		for _, f := range check.Check(listeners(c.prev), listeners(c.next), nil) {
			if f.Rule == 10 {
				rejected = append(rejected, f.Resource)
				if !strings.Contains(f.Message, c.why) {
					t.Errorf("%s -> %s: %s", c.prev, c.next, f.Message)
				}
			}
		}
		if got := strings.Join(rejected, " "); got != c.rejected {
			t.Errorf("%s -> %s: rejected are %q, want %q", c.prev, c.next, got, c.rejected)
		}
	}
}
