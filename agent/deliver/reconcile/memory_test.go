package reconcile_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/deliver/reconcile"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// problemsOf returns the errors of the last pass.
func problemsOf(r *reconcile.Reconciler) (out []string) {
	for _, p := range r.Last().Problems {
		out = append(out, p.Severity+" "+p.Resource+" "+p.Reason)
	}
	return out
}

// TestNoMemoryForMore uses memory for two of four proxies. These two are served and updated; the
// others are refused and listed, and served when there is memory again. An unknown node gets
// another error.
func TestNoMemoryForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short atomic.Bool
		s, c := agenttest.Memory(t), newCrowd()
		docs := []string{agenttest.Meshes("default")}
		for i := range 4 {
			docs = append(docs, crowdProxy(i, 1))
		}
		agenttest.ByAPI(t, s, strings.Join(docs, "\n---\n"))
		r := reconcile.New(reconcile.Options{Store: s, Publisher: c, Admit: func(shed func()) error {
			if short.Load() {
				shed()
				return errors.New("no memory")
			}
			return nil
		}})
		go r.Run(t.Context())
		c.connect(0, 2)
		r.Trigger()
		time.Sleep(time.Second)
		short.Store(true)
		c.connect(2, 5)
		r.Trigger()
		time.Sleep(time.Second)
		want := []string{"error Dataplane/default/p002 it is not served: no memory",
			"error Dataplane/default/p003 it is not served: no memory"}
		if got := problemsOf(r); !slices.Equal(got, want) || r.Refused() != 2 {
			t.Errorf("problems %q, %d refused", got, r.Refused())
		}
		if got, nones := c.refusals(), c.unknown(); !slices.Equal(got, []string{"default.p002", "default.p003"}) ||
			!slices.Equal(nones, []string{"default.p004"}) {
			t.Errorf("refused are %q, unknown %q", got, nones)
		}
		before, _ := c.gets(crowdKey(0))
		agenttest.ByAPI(t, s, crowdProxy(0, 2))
		time.Sleep(time.Second)
		if after, _ := c.gets(crowdKey(0)); after == before {
			t.Error("a served proxy is no longer updated")
		}
		c.leave(crowdKey(1)) // a proxy that reconnects at once is not refused
		r.Trigger()
		time.Sleep(time.Second)
		c.connect(1, 2)
		r.Trigger()
		time.Sleep(time.Second)
		if has, _ := c.gets(crowdKey(1)); has == nil {
			t.Error("a proxy that reconnects at once is refused")
		}
		c.leave(crowdKey(3)) // it does not retry
		short.Store(false)
		r.Trigger()
		time.Sleep(time.Second)
		if has, _ := c.gets(crowdKey(2)); has == nil || r.Refused() != 1 {
			t.Errorf("with memory again, %d are refused", r.Refused())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := problemsOf(r); len(got) > 0 || r.Refused() != 0 {
			t.Errorf("in the end: %q", got)
		}
	})
}

// TestGoneProxies checks that the state of a proxy without a stream is dropped after ForgetAfter,
// not before, and without any other event.
func TestGoneProxies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := agenttest.Memory(t), newCrowd()
		agenttest.ByAPI(t, s, agenttest.Meshes("default")+"\n---\n"+crowdProxy(0, 1))
		forgot, fresh := 0, 0
		r := reconcile.New(reconcile.Options{Store: s, Publisher: c, Forgot: func() { forgot++ },
			Generate: func(in generate.Input, prev *generate.Proxy, memo *generate.Memo) (*generate.Proxy, error) {
				if prev == nil {
					fresh++
				}
				return generate.Generate(in, prev, memo)
			}})
		go r.Run(t.Context())
		c.connect(0, 1)
		r.Trigger()
		time.Sleep(time.Hour) // without events
		for _, step := range []struct {
			gone          time.Duration
			forgot, fresh int
		}{{59 * time.Second, 0, 1}, {61 * time.Second, 1, 2}} {
			c.leave(crowdKey(0))
			r.Trigger()
			time.Sleep(step.gone)
			synctest.Wait()
			if forgot != step.forgot {
				t.Errorf("after %s dropped %d times, want %d", step.gone, forgot, step.forgot)
			}
			c.connect(0, 1)
			r.Trigger()
			time.Sleep(time.Second)
			synctest.Wait()
			if fresh != step.fresh {
				t.Errorf("after %s computed without a previous config %d times, want %d", step.gone, fresh, step.fresh)
			}
		}
	})
}

func (c *crowd) leave(key node.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, key)
	delete(c.has, key)
}

// refusals returns the refused nodes, each once.
func (c *crowd) refusals() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(c.refused)))
}

func (c *crowd) unknown() []string {
	_, nones := c.served()
	return slices.Compact(slices.Sorted(slices.Values(nones)))
}
