package traffictest_test

import (
	"fmt"
	"strings"
)

// many returns n request headers, of which one makes the server respond with two less.
func many(n int) map[string]string {
	out := map[string]string{"X-Headers": fmt.Sprint(n - 2)}
	for i := range n - 1 {
		out[fmt.Sprintf("X-H-%d", i)] = "1"
	}
	return out
}

// headerLimits returns scenes about the limits of headers. The proxies of client and server must
// accept the same requests and responses, although each of them adds headers.
func headerLimits() []scene {
	// The client adds three headers, and the server five: 100 is the limit of their proxies.
	const most = 97
	count := func(n int) func(*answered) bool {
		return func(a *answered) bool { return len(a.seen.Headers) >= n && len(a.header) >= n-2 }
	}
	large := map[string]string{"X-Large": strings.Repeat("x", 60800)}
	rows := func(name string, to, want string) []row {
		return []row{
			{what: "many headers to " + name, to: to, say: get, headers: many(most), want: want, upstream: count(most)},
			{what: "large headers to " + name, to: to, say: get, headers: large, want: want},
			{what: "large headers from " + name, to: to, say: get, want: want,
				headers: map[string]string{"X-Larger": "60800"}},
		}
	}
	return []scene{
		{what: "header limits", rows: rows("a service", "backend.mesh:80", backends)},
		{what: "header limits with mTLS and through the egress", docs: theMesh(strict + ", " + viaEgress), rows: append(
			rows("a service", "backend.mesh:80", backends),
			rows("a MeshExternalService", "partner.outside:80", "partner")...)},
	}
}
