package offline_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
)

func TestMigratedRetries(t *testing.T) {
	property(t, "Retry", false, func(r *rand.Rand) []string {
		var out []string
		pause := func() string { return fmt.Sprintf(`"backOff":{"baseInterval":"%dms"}`, 1+r.IntN(50)) }
		for i := range 1 + r.IntN(5) {
			http := fields(r, num(r, "numRetries"), span(r, "perTryTimeout"), pause(), `"retriableStatusCodes":[409,500]`,
				`"retriableMethods":["GET"]`,
				`"retryOn":[`+pick(r, `"all_5xx"`, `"reset","retriable_4xx"`, `"retriable_headers"`)+`]`)
			// gRPC always has conditions: a policy cannot remove the default conditions of one with
			// lower precedence.
			grpc := fields(r, num(r, "numRetries"), span(r, "perTryTimeout"), pause())
			grpc = grpc[:len(grpc)-1] + `,"retryOn":["` + pick(r, "cancelled", "internal") + `"]}`
			out = append(out, legacy(r, i, "Retry", false,
				fields(r, `"http":`+http, `"grpc":`+grpc, `"tcp":{`+num(r, "maxConnectAttempts")+`}`)))
		}
		return out
	}, retryFacts)
}

// retryFacts returns the effective retry policies, including defaults.
func retryFacts(t *testing.T, p *generate.Proxy) map[string]string {
	out := map[string]string{}
	for _, l := range listenersOf(t, p) {
		for _, f := range l.FilterChains[0].Filters {
			switch m := anyOf(t, f.GetTypedConfig()).(type) {
			case *tcpv3.TcpProxy:
				out[l.Name] = fmt.Sprint(max(1, m.MaxConnectAttempts.GetValue()))
			case *hcmv3.HttpConnectionManager:
				for i, r := range m.GetRouteConfig().VirtualHosts[0].Routes {
					out[fmt.Sprint(l.Name, i)] = retryFact(r.GetRoute().GetRetryPolicy())
				}
			}
		}
	}
	return out
}

func retryFact(p *routev3.RetryPolicy) string {
	n := uint32(1)
	if p.GetNumRetries() != nil {
		n = p.NumRetries.Value
	}
	if p == nil || n == 0 {
		return "none"
	}
	base := 25 * time.Millisecond
	if b := p.GetRetryBackOff().GetBaseInterval(); b != nil {
		base = b.AsDuration()
	}
	longest := 10 * base
	if b := p.GetRetryBackOff().GetMaxInterval(); b != nil {
		longest = b.AsDuration()
	}
	words := strings.Split(p.RetryOn, ",")
	slices.Sort(words)
	return fmt.Sprint(words, n, p.PerTryTimeout.AsDuration(), base, longest, p.RetriableStatusCodes,
		p.RetriableRequestHeaders)
}
