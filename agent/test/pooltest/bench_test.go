package pooltest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

var (
	heapWriters = flag.Int("heap-writers", 10, "number of nodes that write 10,000 policies each in BenchmarkPoolHeap")
	heapProfile = flag.String("heap-profile", "", "file for the heap profile of BenchmarkPoolHeap")
)

// times holds durations of one kind.
type times []time.Duration

// report reports percentiles in milliseconds as "ms-NAMEp50".
func (list times) report(b *testing.B, name string, percents ...int) {
	b.Helper()
	slices.Sort(list)
	for _, p := range percents {
		at := list[min(len(list)*p/100, len(list)-1)]
		b.ReportMetric(float64(at.Microseconds())/1000, fmt.Sprintf("ms-%sp%d", name, p))
	}
}

// BenchmarkPoolAcknowledge measures how long an API write takes until it is acknowledged, on a disk
// whose fsync takes 2 ms longer than that of this machine.
func BenchmarkPoolAcknowledge(b *testing.B) {
	for name, n := range map[string]int{"alone": 1, "pool": 2} {
		b.Run(name, func(b *testing.B) {
			all := newPool(b, n)
			for _, m := range all {
				m.env = append(m.env, syncEnv+"=2ms")
				if n == 1 {
					m.set = append(m.set, "gossip.bind=", "gossip.join=")
				}
			}
			startAll(all...)
			all[0].apply(meshText)
			var list times
			for b.Loop() {
				text := timeoutText("slow", "1", fmt.Sprintf("%ds", 100+len(list)))
				began := time.Now()
				all[0].apply(text)
				list = append(list, time.Since(began))
			}
			list.report(b, "", 50, 99)
		})
	}
}

// envoy is a client of an agent that subscribes to all listeners, as an Envoy does.
type envoy struct {
	changed chan struct{}
}

// connect opens a delta stream of the dataplane "name". It ends with ctx.
func (m *member) connect(ctx context.Context, b *testing.B, name string) *envoy {
	b.Helper()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(agenttest.Dial(b, m.socket("xds.sock"))).
		DeltaAggregatedResources(ctx)
	agenttest.Do(b, err)
	node := &core.Node{Id: "default." + name, UserAgentName: "envoy"}
	for _, typeURL := range []string{draft.TypeCluster, draft.TypeListener} {
		agenttest.Do(b, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL,
			ResourceNamesSubscribe: []string{"*"}}))
	}
	e := &envoy{changed: make(chan struct{}, 1024)}
	go func() {
		for {
			got, err := s.Recv()
			if err != nil {
				return
			}
			_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: got.TypeUrl, ResponseNonce: got.Nonce})
			for _, r := range got.Resources {
				if got.TypeUrl == draft.TypeListener && strings.HasPrefix(r.Name, "outbound") {
					e.changed <- struct{}{}
				}
			}
		}
	}()
	return e
}

// BenchmarkPoolDelivery measures the time from an API write on one of 12 agents until the Envoy of
// another one has the change.
func BenchmarkPoolDelivery(b *testing.B) {
	all := startPool(b, 12)
	one, other := all[0], all[11]
	one.apply(meshText + "---\n" + agenttest.DataplaneText("default", "api", "10.0.0.2"))
	other.has("meshes", "default", "0")
	other.apply("type: Dataplane\nmesh: default\nname: web\nnetworking:\n  address: 10.0.0.1\n" +
		"  inbound:\n  - port: 80\n    tags: {kuma.io/service: web}\n" +
		"  outbound:\n  - port: 10000\n    tags: {kuma.io/service: api}\n")
	e := other.connect(b.Context(), b, "web")
	<-e.changed
	var list times
	for b.Loop() {
		text := timeoutText("slow", "1", fmt.Sprintf("%ds", 100+len(list)))
		began := time.Now()
		one.apply(text)
		<-e.changed
		list = append(list, time.Since(began))
	}
	list.report(b, "", 50, 99)
}

// cpu returns the CPU time of the process.
func (m *member) cpu() (sum time.Duration) {
	m.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", m.cmd.Process.Pid))
	agenttest.Do(m.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		agenttest.Do(m.t, err)
		run, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(run, 10, 64)
		agenttest.Do(m.t, err)
		sum += time.Duration(ns)
	}
	return sum
}

// policies returns n policies with about 730 bytes each.
func policies(prefix string, n int) string {
	var text strings.Builder
	padding := ""
	for i := range 8 {
		padding += fmt.Sprintf(", test/padding-%d: %s", i, strings.Repeat(string(rune('a'+i)), 40))
	}
	for i := range n {
		fmt.Fprintf(&text, "---\ntype: MeshTimeout\nmesh: default\nname: %s-%d\nlabels: {%s: %q%s}\n"+
			"spec:\n  targetRef: {kind: Mesh}\n"+
			"  to: [{targetRef: {kind: Mesh}, default: {idleTimeout: %ds}}]\n", prefix, i, writeLabel, "1", padding, 1+i)
	}
	return text.String()
}

// BenchmarkPoolRestart measures the restart of one of two agents with 10,000 policies, and its CPU
// use while nothing happens.
func BenchmarkPoolRestart(b *testing.B) {
	const n, idle = 10_000, 20 * time.Second
	all := startPool(b, 2)
	all[0].apply(meshText)
	all[1].has("meshes", "default", "0")
	for i, m := range all {
		m.apply(policies(fmt.Sprintf("of-%d", i), n/2))
	}
	for _, m := range all {
		m.await("it has all policies", func() bool { return m.count("meshtimeouts") == n })
	}
	var ready, used time.Duration
	for b.Loop() {
		all[1].stop()
		began := time.Now()
		all[1].start()
		ready += time.Since(began)
		<-time.After(5 * time.Second) // until the work after the start is done
		before := all[1].cpu()
		<-time.After(idle)
		used += all[1].cpu() - before
	}
	b.ReportMetric(ready.Seconds()/float64(b.N), "ready-s")
	b.ReportMetric(100*used.Seconds()/float64(b.N)/idle.Seconds(), "idle-core-%")
}

// BenchmarkPoolDataplanes measures how long 5,000 Dataplanes of one node take to another node.
func BenchmarkPoolDataplanes(b *testing.B) {
	const n = 5000
	var list times
	for b.Loop() {
		all := startPool(b, 2)
		all[0].apply(meshText)
		all[1].has("meshes", "default", "0")
		all[0].apply(dataplanesText(n))
		began := time.Now()
		all[1].await("it has all Dataplanes", func() bool { return all[1].count("dataplanes") == n })
		list = append(list, time.Since(began))
		for _, m := range all {
			m.kill()
		}
	}
	list.report(b, "", 50)
}

// BenchmarkPoolHeap measures the heap of an agent with 100,000 policies, which ten nodes have
// written one after the other.
func BenchmarkPoolHeap(b *testing.B) {
	const each = 10_000
	writers := *heapWriters
	for b.Loop() {
		all := newPool(b, writers+1)
		reader := all[writers]
		for i, m := range all[:writers] {
			startAll(m, reader)
			if i == 0 {
				m.apply(meshText)
			}
			m.has("meshes", "default", "0")
			own := each
			if i == 0 {
				own-- // the mesh is a record too
			}
			m.apply(policies(fmt.Sprintf("of-%d", i), own))
			want := (i+1)*each - 1
			reader.await("it has all policies", func() bool { return reader.count("meshtimeouts") == want })
			m.stop()
			reader.stop()
		}
		reader.start()
		<-time.After(5 * time.Second) // until the work after the start is done
		if *heapProfile != "" {
			profile, err := reader.api.Profile(b.Context(), "heap", 1)
			agenttest.Do(b, err, os.WriteFile(*heapProfile, profile, 0o644))
		}
		metrics, err := reader.api.Raw(b.Context(), "/metrics", nil)
		agenttest.Do(b, err)
		_, after, _ := strings.Cut(string(metrics), "\ngo_memstats_heap_alloc_bytes ")
		line, _, _ := strings.Cut(after, "\n")
		bytes, err := strconv.ParseFloat(line, 64)
		agenttest.Do(b, err)
		b.ReportMetric(bytes/(1<<20), "heap-MiB")
		reader.kill()
	}
}
