package agent_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent"
	"github.com/nearside-mesh/nearside/agent/compute/check"
	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/compute/kinds"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
	"github.com/nearside-mesh/nearside/agent/test/envoyfuzz"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
	"github.com/nearside-mesh/nearside/agent/test/kindtest"
)

// rejectedCounts counts the inputs of TestRejectedInputs by what happened to them.
type rejectedCounts struct{ impossible, refused, applied, rejected, nacked atomic.Int64 }

// TestRejectedInputs applies the inputs of TestEnvoyFuzz to an agent, and starts an Envoy. If an
// input is rejected or withheld, all requests must pass nevertheless, except those to a service
// whose resource would be less restricted without the policy. REJECTED_N is the number of
// inputs (0 or unset skips the test), REJECTED_SEED the seed, and REJECTED_ONLY the number of the
// only input. Every second input that Envoy may reject is not checked before it is sent.
func TestRejectedInputs(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("REJECTED_N"))
	if n == 0 {
		t.Skip("make envoy-fuzz runs it")
	}
	envoytest.Find(t)
	seed, _ := strconv.ParseUint(cmp.Or(os.Getenv("REJECTED_SEED"), "1"), 10, 64)
	only := os.Getenv("REJECTED_ONLY")
	var c rejectedCounts
	t.Run("inputs", func(t *testing.T) {
		for i := range n {
			if only != "" && only != strconv.Itoa(i) {
				continue
			}
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				rejectedInput(t, rand.New(rand.NewPCG(seed, uint64(i))), i%2 == 1, &c)
			})
		}
	})
	t.Logf("seed %d: of %d inputs, %d cannot be part of a policy, %d were refused, %d applied, %d were rejected or "+
		"withheld; %d passed the check and were rejected by Envoy", seed, n, c.impossible.Load(), c.refused.Load(),
		c.applied.Load(), c.rejected.Load(), c.nacked.Load())
}

// fuzzedProxy returns a mesh with the proxy web, which serves all services of the inputs and
// reaches them, and for each service the addresses of its listeners.
func fuzzedProxy(t *testing.T) (docs string, addresses map[string][]string) {
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	workload := serveText(t, both, "ok")
	used := map[int]bool{}
	port := func() (p int) {
		for p = freePort(t); used[p]; p = freePort(t) {
		}
		used[p] = true
		return p
	}
	var ports []int
	for range 8 {
		ports = append(ports, port())
	}
	slices.Sort(ports) // so that the order of listeners does not depend on them
	addresses = map[string][]string{}
	var in, out []string
	for i, service := range []string{"web/http", "backend/http", "db/tcp", "grpc/grpc"} {
		name, protocol, _ := strings.Cut(service, "/")
		p, q := ports[2*i], ports[2*i+1]
		addresses[name] = []string{fmt.Sprintf("127.0.0.2:%d", p), fmt.Sprintf("127.0.0.1:%d", q)}
		in = append(in, fmt.Sprintf("{port: %d, servicePort: %d, serviceAddress: 127.0.0.1, tags: {kuma.io/service: %s, "+
			"kuma.io/protocol: %s}}", p, workload, name, protocol))
		out = append(out, fmt.Sprintf("{port: %d, tags: {kuma.io/service: %s}}", q, name))
	}
	policies := strings.ReplaceAll(envoyfuzz.Policies, "/var/log/all.log", filepath.Join(t.TempDir(), "all.log"))
	return fmt.Sprintf("%s---\n{type: Dataplane, mesh: default, name: web, networking: {address: 127.0.0.2, inbound: "+
		"[%s], outbound: [%s]}}\n", policies, strings.Join(in, ", "), strings.Join(out, ", ")), addresses
}

// closedResources returns the names of resources that the agent does not send without a policy,
// because the policy restricts access. Requests to their services fail.
func closedResources(t *testing.T, a *agenttest.Running) []string {
	status, err := a.Api().Status(t.Context())
	agenttest.Do(t, err)
	var out []string
	for _, p := range status.Problems {
		if name, _, found := strings.Cut(p.Reason, " is not in force with this policy, and the agent does not send it "+
			"without the policy"); found {
			out = append(out, strings.Trim(name, `"`))
		}
	}
	return out
}

func rejectedInput(t *testing.T, r *rand.Rand, unchecked bool, c *rejectedCounts) {
	docs, addresses := fuzzedProxy(t)
	var base *envoy.Snapshot
	kindtest.InputOf(t, "fuzzed", []byte(docs)).Proxies(t, node.FlavorEnvoy, func(p *generate.Proxy) {
		base = p.Snapshot()
	})
	input := envoyfuzz.New(r, []*envoy.Snapshot{base}, "")
	odd, ok := input.Document()
	if !ok {
		c.impossible.Add(1)
		return
	}
	if _, faults := kinds.Registry().Decode("", []byte(odd)); len(faults) > 0 {
		c.refused.Add(1)
		return
	}
	findings := check.Check(nil, input.Config, &finding.Facts{SecretsLater: true})
	if input.Policy != "" && len(findings) == 0 { // TestEnvoyFuzz shows that Envoy accepts it
		c.applied.Add(1)
		return
	}
	deps := agent.Deps{}
	unusable := func(f finding.Finding) bool { return f.Severity == finding.Unusable }
	if unchecked && !slices.ContainsFunc(findings, unusable) {
		deps.Check = func(*generate.Proxy, *check.Checker, *draft.Sealed) []finding.Finding { return nil }
	}
	a := agenttest.Up(t, agenttest.ShortDir(t), deps)
	agenttest.Apply(t, a.Agent, docs+"---\n"+odd)
	t.Logf("%s %s\n%s", input.Group, input.What, odd)
	startEnvoy(t, a.Agent, "web")
	kind := "meshproxypatch"
	if input.Policy != "" {
		kind = strings.ToLower(strings.Fields(input.Policy)[1])
	}
	got := waitFor(t, a, kind, "odd")
	if got.State != api.StateRejected {
		c.applied.Add(1)
		return
	}
	c.rejected.Add(1)
	if got.Rejected[0].By == api.HeldByProxy && !unchecked {
		c.nacked.Add(1)
		t.Logf("passes the check: %s %s\n%s", input.Group, input.What, got.Rejected[0].Reason)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	failed := ""
	passes := func() bool {
		failed = ""
		closed := closedResources(t, a)
		for service, list := range addresses {
			if slices.ContainsFunc(closed, func(resource string) bool {
				_, address, _ := strings.Cut(resource, "bound:")
				return resource == service || slices.Contains(list, address) || // or the cluster of the workload:
					strings.HasSuffix(resource, map[string]string{"web": "_http", "backend": "_http", "db": "_tcp",
						"grpc": "_http2"}[service]) && strings.HasPrefix(resource, "localhost:")
			}) {
				continue
			}
			for _, address := range list {
				if service == "grpc" && address == list[0] { // needs HTTP/2
					continue
				}
				resp, err := client.Get("http://" + address + "/")
				if err != nil {
					failed += err.Error() + "; "
					continue
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					failed += fmt.Sprintf("%s answers %d; ", address, resp.StatusCode)
				}
			}
		}
		return failed == ""
	}
	for begun := time.Now(); !passes(); <-time.After(50 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("%s\n%v\n%+v", failed, closedResources(t, a), waitFor(t, a, kind, "odd").Rejected)
		}
	}
}
