package agent_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// metric returns the value of a metric, summed over all labels.
func (a *stormAgent) metric(name string) (sum int) {
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+`(?:{.*})? (.*)$`).
		FindAllStringSubmatch(a.ask(http.MethodGet, "/metrics", ""), -1) {
		v, _ := strconv.ParseFloat(m[1], 64)
		sum += int(v)
	}
	return sum
}

// TestStormOfMemory limits an agent to 256 MiB with 280 proxies that reach 1,000 services with 20
// policies, which need more. The agent must serve as many proxies as fit, and keep them connected
// while all their resources change. It must refuse the others with the remedy, and serve them when
// memory is available. The kernel must not kill any process.
func TestStormOfMemory(t *testing.T) {
	if os.Getenv("STORM") != "full" {
		t.Skip("this takes a minute or two: STORM=full runs it. TestMemoryIsShort is the same with figures that are made up")
	}
	const proxies = 280
	group := newMemoryGroup(t, 256<<20)
	a := newEmptyStormAgent(t)
	agenttest.Do(t,
		os.WriteFile(a.dir+"/resources/all.yaml", []byte(memoryMesh(proxies, true, true, false)+benchPolicies(20)), 0o644))
	a.start(group, stormEnv+"_LIMITED=1")
	a.ask(http.MethodGet, "/readyz", "")
	first, second := newCrowdOfClients(t, a, 1000, proxies), newCrowdOfClients(t, a, 1000, proxies)
	heard := make(chan string, 1_000_000)
	for _, c := range []*crowdOfClients{first, second} {
		c.got = func(k int, typeURL string, names []string) {
			for _, name := range names {
				heard <- fmt.Sprint(k, " ", typeURL, " ", name)
			}
		}
	}
	first.connect(0, proxies/2)
	second.connect(proxies/2, proxies)
	say := func(when string) (served, refused int) {
		served, refused = int(first.served.Load()+second.served.Load()), a.metric("nearside_memory_refused_proxies")
		t.Logf("%s: %d served, %d refused, %d MiB in use of %d, %d at most in the group with the cache of files, "+
			"caches given up %d times", when, served, refused, a.metric("nearside_memory_in_use_bytes")>>20,
			a.metric("nearside_memory_limit_bytes")>>20, peak(group)>>20, a.metric("nearside_memory_sheds_total"))
		return served, refused
	}
	// until waits until a condition becomes true and stays true for a while, and logs the time.
	until := func(what string, is func() bool) {
		t.Helper()
		late := time.Now().Add(4 * time.Minute)
		for steady := 0; steady < 5; {
			if <-time.After(time.Second); is() {
				steady++
				continue
			}
			if steady = 0; time.Now().After(late) {
				say(what)
				t.Fatalf("not in four minutes: %s\n%s", what, a.log)
			}
		}
	}
	until("all are served or refused", func() bool {
		return int(first.served.Load()+second.served.Load())+a.metric("nearside_memory_refused_proxies") == proxies
	})
	served, refused := say("after the start")
	if served == 0 || refused == 0 {
		t.Fatalf("%d are served and %d refused: of this nothing can be learned", served, refused)
	}
	for _, piece := range []string{"ResourceExhausted", "MiB of its limit of 230 MiB are in use", "MemoryMax="} {
		if !strings.Contains(first.reason()+second.reason(), piece) {
			t.Errorf("who is refused is not told %q: %s", piece, second.reason())
		}
	}
	if text := a.ask(http.MethodGet, "/v1/status", ""); !strings.Contains(text,
		"it is not served: the agent has no memory for more proxies") {
		t.Errorf("the status does not say so: %s", text)
	}

	hears := func(what string, n int) {
		t.Helper()
		who := map[string]bool{}
		for late := time.After(stormPatience); len(who) < n; {
			select {
			case line := <-heard:
				if k, rest, _ := strings.Cut(line, " "); rest == what {
					who[k] = true
				}
			case <-late:
				t.Fatalf("%d of %d proxies that are served have got %s", len(who), n, what)
			}
		}
	}
	a.ask(http.MethodPost, "/v1/apply", endpoint(7, 2, "10.7.0.1"))
	hears(draft.TypeEndpoint+" svc-7", served)
	// The change comes from a file, because an API write is first checked for all proxies.
	a.write("z.yaml", `{"type":"MeshTimeout","mesh":"default","name":"z","spec":{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"3s"}}]}}`)
	hears(draft.TypeCluster+" svc-500", served)
	if now, _ := say("after changes of all"); now < served {
		t.Errorf("%d were served before and %d after", served, now)
	}

	before := int(second.served.Load())
	first.cancel()
	until("all that stay are served", func() bool { return int(second.served.Load()) == proxies/2 })
	say("when half of them have left, and those counted that have")
	t.Logf("of those that stay %d were served before", before)
	if n := kills(group); n != "0" {
		t.Errorf("the kernel has ended %s processes", n)
	}
}

func peak(g *controlGroup) int {
	n, _ := strconv.Atoi(g.read("memory.max_usage_in_bytes", "memory.peak"))
	return n
}

// kills returns the number of processes of a group that the kernel killed for lack of memory.
func kills(g *controlGroup) string {
	m := regexp.MustCompile(`(?m)^oom_kill (\d+)$`).FindStringSubmatch(g.read("memory.oom_control", "memory.events"))
	if m == nil {
		return "an unknown number of"
	}
	return m[1]
}
