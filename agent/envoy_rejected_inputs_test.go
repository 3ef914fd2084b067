package agent_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// oddInputs are modifications that Envoy may reject, by kind and match. A random value replaces
// each <a|b>.
var oddInputs = [...]struct{ kind, head, value string }{
	{"cluster", "operation: Patch, match: {name: web}", "connectTimeout: <9223372037s|0s|-1s>"},
	{"cluster", "operation: Patch, match: {name: web}", "lbPolicy: <CLUSTER_PROVIDED|LOAD_BALANCING_POLICY_CONFIG>"},
	{"cluster", "operation: Patch, match: {name: web}", "type: <STATIC|LOGICAL_DNS|ORIGINAL_DST>"},
	{"cluster", "operation: Patch, match: {name: web}",
		"{lbPolicy: MAGLEV, maglevLbConfig: {tableSize: <2|100|65536|5000012>}}"},
	{"cluster", "operation: Patch, match: {name: web}",
		"upstreamBindConfig: {sourceAddress: {address: '<1.2.3|example.com|::ffff:1.2.3.4>', portValue: 0}}"},
	{"cluster", "operation: Patch, match: {name: web}",
		"outlierDetection: {maxEjectionTime: <1s|9223372037s>, baseEjectionTime: 30s}"},
	{"cluster", "operation: Patch, match: {name: web}", "loadBalancingPolicy: {policies: [{typedExtensionConfig: " +
		"{name: odd, " +
		"typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.<buffer|cors>.v3.<Buffer|Cors>}}}]}"},
	{"cluster", "operation: Patch, match: {name: web}", "healthChecks: [{timeout: 1s, interval: <1s|9223372037s>, " +
		"unhealthyThreshold: 1, healthyThreshold: 1, grpcHealthCheck: {}}]"},
	{"cluster", "operation: Add",
		"name: odd\ntype: <EDS|STATIC|ORIGINAL_DST>\nconnectTimeout: 1s\nlbPolicy: CLUSTER_PROVIDED"},
	{"listener", "operation: Patch, match: {origin: <inbound|outbound>}",
		"socketOptions: [{level: 1, name: <9999|2>, intValue: 1, state: STATE_PREBIND}]"},
	{"listener", "operation: Patch, match: {origin: <inbound|outbound>}",
		"listenerFilters: [{name: odd, " +
			"typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}]"},
	{"listener", "operation: Patch, match: {origin: <inbound|outbound>}",
		"accessLog: [{name: odd, typedConfig: {'@type': " +
			"type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: </no/dir/log|/>}}]"},
	{"listener", "operation: Patch, match: {origin: <inbound|outbound>}", "accessLog: [{name: odd, typedConfig: " +
		"{'@type': type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: /dev/null, " +
		"logFormat: {textFormatSource: {inlineString: '%<NO|REQ(a?b?c)|GRPC_STATUS(X)|START_TIME(%n)>%'}}}}]"},
	{"listener", "operation: Patch, match: {origin: outbound}",
		"address: {socketAddress: {address: 192.0.2.1, portValue: 1}}"},
	{"listener", "operation: Patch, match: {origin: <inbound|outbound>}", "connectionBalanceConfig: {}"},
	{"networkFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}", "name: odd\ntypedConfig: {'@type': " +
		"type.googleapis.com/envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit, statPrefix: a, " +
		"tokenBucket: {maxTokens: 1000, fillInterval: <0.001s|1s|0.049s>}}"},
	{"networkFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}", "name: odd\ntypedConfig: {'@type': " +
		"type.googleapis.com/envoy.extensions.filters.network.<echo.v3.Echo|direct_response.v3.Config>}"},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("lua", "envoy.extensions.filters.http.lua.v3.Lua", "  inlineCode: '<function (|end|x = = 1|goto a>'\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("router", "envoy.extensions.filters.http.router.v3.Router", "")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("buffer", "envoy.extensions.filters.http.buffer.v3.Buffer", "  maxRequestBytes: <0|1>\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("fault", "envoy.extensions.filters.http.fault.v3.HTTPFault",
			"  abort: {httpStatus: <1|600|199>, percentage: {numerator: 0}}\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("compressor", "envoy.extensions.filters.http.compressor.v3.Compressor",
			"  compressorLibrary: {name: odd, "+
				"typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("header_mutation", "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
			"  mutations: {requestMutations: [{append: {header: {key: a, value: '%<NO|REQ()|CEL(request.)>%'}}}]}\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("local_ratelimit", "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
			"  statPrefix: a\n  tokenBucket: {maxTokens: <0|1000>, fillInterval: <0.001s|1s>}\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("wasm", "envoy.extensions.filters.http.wasm.v3.Wasm",
			"  config: {vmConfig: {runtime: <odd|envoy.wasm.runtime.v8>, code: {local: {inlineString: x}}}}\n")},
	{"httpFilter", "operation: AddFirst, match: {origin: <inbound|outbound>}",
		httpFilterOf("odd", "envoy.extensions.filters.http.<no|golang|alternate_protocols_cache>.v3.<No|Config|FilterConfig>",
			"")},
	{"virtualHost", "operation: Patch, match: {origin: <inbound|outbound>}",
		"retryPolicy: {retryOn: 5xx, retryBackOff: {baseInterval: <10s|0.0001s>, maxInterval: 1s}}"},
	{"virtualHost", "operation: Patch, match: {origin: <inbound|outbound>}", "domains: ['*', <'*'|a>]"},
	{"virtualHost", "operation: Patch, match: {origin: <inbound|outbound>}",
		"requestHeadersToAdd: [{header: {key: '<:path|a b|x>', value: '%<NO|REQ(a?b?c)>%'}}]"},
}

// oddInput returns a random modification.
func oddInput(r *rand.Rand) string {
	x := oddInputs[r.IntN(len(oddInputs))]
	fill := func(text string) string {
		for {
			head, rest, found := strings.Cut(text, "<")
			if !found {
				return text
			}
			choices, tail, _ := strings.Cut(rest, ">")
			list := strings.Split(choices, "|")
			text = head + list[r.IntN(len(list))] + tail
		}
	}
	return modification("bad", x.kind, fill(x.head), fill(x.value))
}

// TestRejectedInputs applies random modifications and starts an Envoy. If one is rejected or
// withheld, all requests must pass nevertheless. REJECTED_N is the number of inputs, 0 or unset
// skips the test, and REJECTED_SEED the seed. Every second input is not checked before it is sent.
func TestRejectedInputs(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("REJECTED_N"))
	if n == 0 {
		t.Skip("make envoy-fuzz runs it")
	}
	envoytest.Find(t)
	seed, _ := strconv.ParseUint(os.Getenv("REJECTED_SEED"), 10, 64)
	var rejected, applied, nacked atomic.Int64
	t.Run("inputs", func(t *testing.T) {
		for i := range n {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				rejectedInput(t, rand.New(rand.NewPCG(seed, uint64(i))), i%2 == 1, &rejected, &applied, &nacked)
			})
		}
	})
	t.Logf("seed %d: of %d inputs, %d were rejected or withheld, %d applied; %d passed the check and were rejected "+
		"by Envoy", seed, n, rejected.Load(), applied.Load(), nacked.Load())
}

func rejectedInput(t *testing.T, r *rand.Rand, unchecked bool, rejected, applied, nacked *atomic.Int64) {
	deps := agent.Deps{}
	if unchecked {
		deps.Check = func(*generate.Proxy, *check.Checker, *draft.Sealed) []finding.Finding { return nil }
	}
	input := oddInput(r)
	for _, faults := kinds.Registry().Decode("", []byte(input)); len(faults) > 0; {
		input = oddInput(r) // no agent stores it
		_, faults = kinds.Registry().Decode("", []byte(input))
	}
	a := agenttest.Up(t, agenttest.ShortDir(t), deps)
	in, out, other, workload := freePort(t), freePort(t), freePort(t), serveText(t, nil, "ok")
	agenttest.Apply(t, a.Agent, fmt.Sprintf("{type: Mesh, name: default}\n---\n{type: Dataplane, mesh: default, "+
		"name: web, networking: {address: 127.0.0.2, inbound: [{port: %d, servicePort: %d, serviceAddress: 127.0.0.1, "+
		"tags: {kuma.io/service: web, kuma.io/protocol: http}}], outbound: [{port: %d, tags: {kuma.io/service: web}}, "+
		"{port: %d, tags: {kuma.io/service: plain}}]}}\n---\n{type: Dataplane, mesh: default, name: plain, networking: "+
		"{address: 127.0.0.1, inbound: [{port: %d, tags: {kuma.io/service: plain, kuma.io/protocol: tcp}}]}}\n---\n%s",
		in, workload, out, other, workload, input))
	startEnvoy(t, a.Agent, "web")
	got := waitFor(t, a, "meshproxypatch", "bad")
	if got.State != api.StateRejected {
		applied.Add(1)
		return
	}
	rejected.Add(1)
	if got.Rejected[0].By == api.HeldByProxy && !unchecked {
		nacked.Add(1)
		t.Logf("passes the check: %s\n%s", input, got.Rejected[0].Reason)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	failed := ""
	passes := func() bool {
		failed = ""
		for host, ports := range map[string][]int{"127.0.0.1": {out, other}, "127.0.0.2": {in}} {
			for _, port := range ports {
				resp, err := client.Get(fmt.Sprintf("http://%s:%d/", host, port))
				if err != nil {
					failed += err.Error() + "; "
					continue
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					failed += fmt.Sprintf("%s:%d answers %d; ", host, port, resp.StatusCode)
				}
			}
		}
		return failed == ""
	}
	for begun := time.Now(); !passes(); <-time.After(50 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%s\n%s\n%+v", failed, input, waitFor(t, a, "meshproxypatch", "bad").Rejected)
		}
	}
}
