package httpapi_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/change"
	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/finding"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// TestWritesAreCheckedWhole has a slow check: a document is stored only after all proxies are
// checked, however long that takes, and not at all if the last of them would reject the result. A
// deletion is never refused and has a time limit.
func TestWritesAreCheckedWhole(t *testing.T) {
	var bounded, looked atomic.Int64
	a := start(t, func(o *httpapi.Options) {
		o.NewTry = func() change.Try {
			return func(ctx context.Context, p *generate.Proxy) ([]finding.Finding, error) {
				looked.Add(1)
				if until, has := ctx.Deadline(); has && time.Until(until) <= time.Minute {
					bounded.Add(1)
				}
				return nil, nil
			}
		}
	})
	a.put(store.Source{Kind: store.SourceAPI}, services)
	a.reconcile()
	a.want(a.do("POST", "/v1/apply", slow("9s")), 200, "t1")
	if n := looked.Load(); n == 0 || bounded.Load() > 0 {
		t.Errorf("of %d proxies %d were to be checked within a time, after which the rest is stored unchecked",
			n, bounded.Load())
	}
	looked.Store(0)
	bounded.Store(0)
	a.want(a.do("DELETE", "/meshes/default/meshtimeouts/t1", ""), 200, "t1")
	if n := looked.Load(); n == 0 || bounded.Load() != n {
		t.Errorf("a deletion waits without an end for %d of %d proxies", n-bounded.Load(), n)
	}
}
