package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/model/store"
	"github.com/nearside-mesh/nearside/agent/serve/httpapi"
)

// statusOf asks for the status and counts the warnings about probes, of which each dataplane of
// these tests has one.
func statusOf(a *testAPI) (s api.Status, warnings int) {
	r := a.do(http.MethodGet, "/v1/status", "")
	if err := json.Unmarshal([]byte(r.body), &s); err != nil || r.status != http.StatusOK {
		a.t.Errorf("%d: %v", r.status, err)
	}
	for _, p := range s.Problems {
		if p.Severity == api.SeverityWarning && strings.Contains(p.Reason, "probes have no effect") {
			warnings++
		}
	}
	return s, warnings
}

func withProbes(n int) string {
	docs := "{type: Mesh, name: default}\n"
	for i := range n {
		docs += fmt.Sprintf("---\n{type: Dataplane, mesh: default, name: d%d, networking: {address: 10.0.0.%d, "+
			"inbound: [{port: 80, tags: {kuma.io/service: s}}]}, "+
			"probes: {port: 9000, endpoints: [{inboundPort: 80, inboundPath: /, path: /80}]}}\n", i, i+1)
	}
	return docs
}

// TestStatusLooksAtUnconnectedProxies checks that the status has warnings of proxies that no user
// queries. It checks as many as the time allows and counts the others. It does not check connected
// proxies or those of other nodes.
func TestStatusLooksAtUnconnectedProxies(t *testing.T) {
	viaAPI := store.Source{Kind: store.SourceAPI}
	for name, c := range map[string]struct {
		time               time.Duration
		unchecked, warning int
	}{"with time": {time.Minute, 0, 3}, "without": {1, 3, 0}} {
		a := start(t, func(o *httpapi.Options) {
			o.Limits.LookTime = c.time
			o.Proxies = func() []api.ProxyStatus {
				return []api.ProxyStatus{{Mesh: "default", Name: "d0", Flavor: node.FlavorEnvoy, State: api.StateServing,
					Streams: 1}}
			}
		})
		a.put(viaAPI, withProbes(4))
		a.put(store.Source{Kind: store.SourcePeer, Detail: "n2"}, "{type: Dataplane, mesh: default, name: far, "+
			"networking: {address: 10.0.1.1, inbound: [{port: 80, tags: {kuma.io/service: s}}]}, "+
			"probes: {port: 9000, endpoints: [{inboundPort: 80, inboundPath: /, path: /80}]}}")
		a.reconcile()
		for range 2 { // the second time from the cache
			if s, warnings := statusOf(a); s.Unchecked != c.unchecked || warnings != c.warning {
				t.Errorf("%s: %d unchecked, %d warnings", name, s.Unchecked, warnings)
			}
		}
		if c.time == 1 {
			continue
		}
		// Changed proxies are checked again, and many users may ask at once.
		a.put(viaAPI, strings.ReplaceAll(withProbes(3),
			", probes: {port: 9000, endpoints: [{inboundPort: 80, inboundPath: /, path: /80}]}", ""))
		a.reconcile()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if s, warnings := statusOf(a); s.Unchecked != 0 || warnings != 1 {
					t.Errorf("after a change: %d unchecked, %d warnings", s.Unchecked, warnings)
				}
			})
		}
		all.Wait()
	}
}
