package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/deliver/rollout"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// crowd is a publisher with many nodes. Each waits from its connection until a config is published
// for it.
type crowd struct {
	mu      sync.Mutex
	since   map[node.Key]time.Time // of connected nodes
	has     map[node.Key]*draft.Sealed
	at      map[node.Key]time.Time // time of the last changed config
	order   []string               // nodes in the order of their first config
	nones   []string               // nodes published as unknown
	refused []string               // nodes refused because of memory
}

func newCrowd() *crowd {
	return &crowd{since: map[node.Key]time.Time{}, has: map[node.Key]*draft.Sealed{}, at: map[node.Key]time.Time{}}
}

func crowdKey(i int) node.Key {
	return node.Key{ID: fmt.Sprintf("default.p%03d", i), Flavor: node.FlavorEnvoy}
}

func (c *crowd) connect(from, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := from; i < to; i++ {
		c.since[crowdKey(i)] = time.Now()
	}
}

func (c *crowd) Connected() []node.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []node.Key
	for k := range c.since {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b node.Key) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (c *crowd) Waiting() map[node.Key]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[node.Key]time.Time{}
	for k, at := range c.since {
		if c.has[k] == nil {
			out[k] = at
		}
	}
	return out
}

func (c *crowd) LastStream() uint64                   { return 0 }
func (c *crowd) Listeners(node.Key) []*draft.Resource { return nil }

func (c *crowd) Publish(m map[node.Key]rollout.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range slices.SortedFunc(func(yield func(node.Key) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}, func(a, b node.Key) int { return strings.Compare(a.ID, b.ID) }) {
		if m[k].Refused != nil {
			c.refused = append(c.refused, k.ID)
			continue
		}
		cfg := m[k].Sealed
		if cfg == nil {
			c.nones = append(c.nones, k.ID)
		}
		if c.has[k] == nil {
			c.order = append(c.order, k.ID)
		}
		if c.has[k] != cfg {
			c.has[k], c.at[k] = cfg, time.Now()
		}
	}
}

// gets returns the config of a proxy, and when it was published.
func (c *crowd) gets(key node.Key) (*draft.Sealed, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has[key], c.at[key]
}

// served returns the proxies in the order of their first config, and the unknown ones.
func (c *crowd) served() (order, nones []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.order), slices.Clone(c.nones)
}

// startCrowd runs a reconciler with n Dataplanes, each of which takes 5 ms.
func startCrowd(t *testing.T, c *crowd, n int) (s *store.Store, trigger func()) {
	t.Helper()
	s = agenttest.Memory(t)
	docs := []string{agenttest.Meshes("default")}
	for i := range n {
		docs = append(docs, crowdProxy(i, 1))
	}
	agenttest.ByAPI(t, s, strings.Join(docs, "\n---\n"))
	r := reconcile.New(reconcile.Options{Store: s, Publisher: c, Generate: func(in generate.Input, prev *generate.Proxy,
		memo *generate.Memo) (*generate.Proxy, error) {
		next, err := generate.Generate(in, prev, memo)
		if prev == nil || next.Sealed != prev.Sealed {
			<-time.After(5 * time.Millisecond)
		}
		return next, err
	}})
	go r.Run(t.Context())
	return s, r.Trigger
}

func crowdProxy(i, edition int) string {
	return agenttest.PortedText("default", fmt.Sprintf("p%03d", i), fmt.Sprintf("10.%d.%d.%d", edition, i/250, i%250))
}

// TestChangeBesideStorm connects 200 proxies at once, which takes a second to serve. A change of a
// connected proxy reaches it within a few slices, and waiting proxies are served in the order of
// their connections.
func TestChangeBesideStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd()
		c.connect(0, 1)
		s, trigger := startCrowd(t, c, 201)
		synctest.Wait()
		time.Sleep(time.Second)
		began := time.Now()
		c.connect(101, 201)
		time.Sleep(time.Millisecond)
		c.connect(1, 101)
		trigger()
		var worst time.Duration
		for i := range 6 {
			time.Sleep(time.Duration(97+i) * time.Millisecond)
			changed := time.Now()
			agenttest.ByAPI(t, s, crowdProxy(0, 2+i))
			time.Sleep(60 * time.Millisecond)
			synctest.Wait()
			_, at := c.gets(crowdKey(0))
			if at.Before(changed) {
				t.Fatalf("change %d has not reached the connected proxy within 60 ms", i)
			}
			worst = max(worst, at.Sub(changed))
		}
		if worst > 30*time.Millisecond { // one slice for waiting proxies, one for those behind, and one more proxy each
			t.Errorf("a change took %s", worst)
		}
		if order, _ := c.served(); len(order) < 100 || len(order) > 200 {
			t.Fatalf("%d proxies were served meanwhile", len(order))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		order, nones := c.served()
		if len(order) != 201 || len(nones) > 0 {
			t.Fatalf("%d of 201 proxies have a config, %d are unknown", len(order), len(nones))
		}
		for i, id := range order[1:] {
			if early := id > crowdKey(100).ID; early != (i < 100) {
				t.Fatalf("%s was served as number %d", id, i)
			}
		}
		_, last := c.gets(crowdKey(100))
		if elapsed := last.Sub(began); elapsed > 1200*time.Millisecond {
			t.Errorf("the last one waited %s", elapsed)
		}
	})
}

// TestEndlessChanges changes all of 20 connected proxies faster than they can be updated, while 20
// others wait. No proxy starves, and all have the last state in the end.
func TestEndlessChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd()
		c.connect(0, 20)
		s, trigger := startCrowd(t, c, 40)
		synctest.Wait()
		time.Sleep(time.Second)
		c.connect(20, 40)
		trigger()
		const editions = 200
		for edition := range editions {
			var docs []string
			for i := range 20 {
				docs = append(docs, crowdProxy(i, 2+edition))
			}
			changed := time.Now()
			agenttest.ByAPI(t, s, strings.Join(docs, "\n---\n"))
			time.Sleep(7 * time.Millisecond)
			synctest.Wait()
			if edition < 50 {
				continue
			}
			for i := range 40 {
				has, at := c.gets(crowdKey(i))
				if has == nil {
					t.Fatalf("%s is still waiting", crowdKey(i).ID)
				}
				if old := changed.Sub(at); i < 20 && old > 250*time.Millisecond {
					t.Fatalf("%s has not been updated for %s", crowdKey(i).ID, old)
				}
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range 20 {
			want := fmt.Sprintf("inbound:10.%d.0.%d:80", 1+editions, i)
			has, _ := c.gets(crowdKey(i))
			if list := has.Resources[draft.RankListener]; len(list) != 1 || list[0].Name != want {
				t.Errorf("%s ends with %s, want %s", crowdKey(i).ID, list[0].Name, want)
			}
		}
	})
}
