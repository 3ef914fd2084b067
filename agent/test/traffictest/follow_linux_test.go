package traffictest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// follows returns how long the Envoy of the machine takes until it has an endpoint, or has it no
// more.
func (m *machine) follows(endpoint string, want bool, began time.Time) time.Duration {
	m.t.Helper()
	m.await(fmt.Sprintf("the Envoy has %s: %t", endpoint, want), func() bool {
		_, b, err := m.envy.get("/clusters")
		return err == nil && strings.Contains(string(b), endpoint) == want
	})
	return time.Since(began)
}

// TestPoolFollowsFiles changes the Dataplane of a pod in the directory of one of three nodes, as a
// watcher of Kubernetes does, and waits until all Envoys follow.
func TestPoolFollowsFiles(t *testing.T) {
	t.Parallel()
	p := startPool(t, 3)
	last := p.all[2]
	file := filepath.Join(last.dir, "resources", "shop.pod-1.yaml")
	endpoint := "shop::" + nodeV4(9) + ":8090::"
	write := func(state string) {
		agenttest.Write(t, file+".new", fmt.Sprintf(`apiVersion: kuma.io/v1alpha1
kind: Dataplane
mesh: default
metadata: {name: pod-1, namespace: shop}
spec:
  networking:
    address: %s
    inbound: [{port: 8090, state: %s, tags: {kuma.io/service: shop, kuma.io/protocol: http}}]
`, nodeV4(9), state))
		agenttest.Do(t, os.Rename(file+".new", file))
	}
	changes := []struct {
		what string
		make func()
		want bool
		all  []time.Duration
	}{
		{what: "new", make: func() { write("Ready") }, want: true},
		{what: "not ready", make: func() { write("NotReady") }},
		{what: "ready", make: func() { write("Ready") }, want: true},
		{what: "removed", make: func() { agenttest.Do(t, os.Remove(file)) }},
	}
	const rounds = 13
	for range rounds {
		for i := range changes {
			c := &changes[i]
			began := time.Now()
			c.make()
			delays := make([]time.Duration, len(p.all))
			var wg sync.WaitGroup
			for j, m := range p.all {
				wg.Go(func() { delays[j] = m.follows(endpoint, c.want, began) })
			}
			wg.Wait()
			c.all = append(c.all, slices.Max(delays))
		}
	}
	var whole []time.Duration
	for _, c := range changes {
		slices.Sort(c.all)
		whole = append(whole, c.all...)
		p.say("%s: in all Envoys after %v in the median, at most %v", c.what, c.all[rounds/2], c.all[rounds-1])
	}
	slices.Sort(whole)
	p.say("%d changes: median %v, at most %v", len(whole), whole[len(whole)/2], whole[len(whole)-1])
	// Single changes may be late on a busy machine.
	if median := whole[len(whole)/2]; median > time.Second {
		t.Errorf("the median is %v, more than a second", median)
	}
}
