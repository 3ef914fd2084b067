package traffictest_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/answer/explain"
	"github.com/nearside-mesh/nearside/agent/test/agenttest"
)

// zonePort is the listener port of zone proxies. Explanations do not cover the requests that they
// forward.
const zonePort = ":10002"

// note records a request that a server received.
func (w *servers) note(s seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saw[s.Server] = s
}

// last returns the last request that a server received.
func (w *servers) last(server string) seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.saw[server]
}

// arrived compares the explained request, as the last explained proxy sends it, with the request
// that the server received.
func (r *row) arrived(x *wire, f *explain.Flow) (faults []string) {
	u := explainedAt(x, f)
	if u == nil || x.seen.Server == "" {
		return nil
	}
	differ := func(what, got, explained string) {
		if got != explained {
			faults = append(faults, fmt.Sprintf("the server gets the %s %q, and %q is explained", what, got, explained))
		}
	}
	differ("method", x.seen.Method, u.Method)
	differ("path", x.seen.Path, u.Path)
	differ("Host", x.seen.Host, u.Host)
	explained := map[string][]string{}
	zone := strings.HasSuffix(x.record.Host, zonePort)
	for _, h := range u.Headers {
		explained[h.Name] = append(explained[h.Name], h.Value)
	}
	for name, values := range explained {
		// Otherwise the explanation must say that the value is unknown, or the header is internal
		// to the proxies.
		if !strings.Contains(u.Note, name) && !(zone && name == "x-kuma-tags") {
			differ("header "+name, x.seen.Headers[name], strings.Join(values, ","))
		}
	}
	for name := range r.headers {
		if name = strings.ToLower(name); explained[name] == nil {
			differ("header "+name, x.seen.Headers[name], "")
		}
	}
	return faults
}

// explainedAt returns the request that, according to f, leaves the last covered proxy, or nil if
// the explanation does not contain it.
func explainedAt(x *wire, f *explain.Flow) *explain.Upstream {
	if i := slices.IndexFunc(f.Servers, func(s explain.Way) bool { return s.Address == x.record.Host }); i >= 0 {
		for _, c := range f.Servers[i].Clusters {
			return c.Request
		}
	}
	for _, c := range f.Clusters {
		if c.Name == x.record.Cluster {
			return c.Request
		}
	}
	return nil
}

// mirrored compares the explained copies of the request with those that their servers received.
func (r *row) mirrored(t testing.TB, w *world, f *explain.Flow) (faults []string) {
	var names []string
	for i := range f.Mirrors {
		m := &f.Mirrors[i]
		names = append(names, m.Cluster)
		server, ok := r.mirrors[m.Cluster]
		if !ok {
			continue
		}
		tick := time.NewTicker(time.Millisecond) // copies arrive asynchronously
		agenttest.Await(t, server+" has got a copy", tick.C, func() bool {
			return w.servers.last(server).Path == m.Request.Path
		})
		tick.Stop()
		if got := w.servers.last(server); got.Host != m.Request.Host {
			faults = append(faults,
				fmt.Sprintf("%s gets a copy with the Host %q, and %q is explained", server, got.Host, m.Request.Host))
		}
	}
	if want := slices.Sorted(maps.Keys(r.mirrors)); !slices.Equal(slices.Sorted(slices.Values(names)), want) &&
		r.say.http() && f.Status < http.StatusBadRequest {
		faults = append(faults, fmt.Sprintf("copies to %q are explained, want %q", names, want))
	}
	return faults
}
