package edgesapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nearside-mesh/nearside/agent/compute/generate"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/resource"
	"github.com/nearside-mesh/nearside/agent/serve/edgesapi"
)

// TestEdges checks which edges exist by default, for one service, and with all=true.
func TestEdges(t *testing.T) {
	w := newWorld(t)
	for query, want := range map[string][]string{
		"": {
			"other a > a allowed",
			"shop backend > redis denied",
			"shop web > backend allowed web-to-backend spec.from[0].default",
			"shop web > redis denied",
		},
		"?mesh=shop&from=web": {"shop web > backend allowed web-to-backend spec.from[0].default",
			"shop web > redis denied"},
		"?mesh=shop&to=redis": {"shop backend > redis denied", "shop web > redis denied"},
		// a pair exists if both services do
		"?mesh=shop&from=redis&to=backend": {"shop redis > backend denied unreachable"},
		"?mesh=shop&from=redis&all=true": {"shop redis > backend denied unreachable",
			"shop redis > redis denied unreachable", "shop redis > web denied unreachable"},
		"?mesh=shop&from=redis": nil,
		"?from=missing":         nil,
		"?to=missing&all=true":  nil,
	} {
		got := w.get(query)
		if diff := cmp.Diff(want, lines(got.Edges)); diff != "" {
			t.Errorf("%q: -want +got\n%s", query, diff)
		}
		if got.Total != len(want) || got.Next != nil {
			t.Errorf("%q: total %d, next %v", query, got.Total, got.Next)
		}
	}
	for _, e := range w.get("").Edges {
		want := map[string]string{
			"a": "mTLS is off in the mesh, so every client is allowed; networking.outbound[0] leads to it",
			"backend": "allowed by MeshTrafficPermission/web-to-backend spec.from[0].default; " +
				"networking.outbound[0] leads to it",
		}[e.To]
		if want != "" && e.Why != want {
			t.Errorf("%s: %q, want %q", e.To, e.Why, want)
		}
	}
}

// TestListed selects the pairs that a dataplane lists, of all those that policies allow.
func TestListed(t *testing.T) {
	w := newWorld(t)
	w.set("open", `{type: Mesh, name: open}
---
type: Dataplane
mesh: open
name: a
networking:
  address: 10.2.0.1
  inbound: [{port: 80, tags: {kuma.io/service: a}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001, reachableServices: [b]}
---
type: Dataplane
mesh: open
name: b
networking:
  address: 10.2.0.2
  inbound: [{port: 80, tags: {kuma.io/service: b}}]
  transparentProxying: {redirectPortInbound: 15006, redirectPortOutbound: 15001}
`)
	for query, want := range map[string][]string{
		"?mesh=open&listed=true":          {"open a > b allowed"},
		"?mesh=open&listed=true&from=b":   nil,
		"?mesh=open&listed=true&to=b":     {"open a > b allowed"},
		"?mesh=open&listed=true&all=true": lines(w.get("?mesh=open&all=true").Edges),
	} {
		got := w.get(query)
		if diff := cmp.Diff(want, lines(got.Edges)); diff != "" || got.Total != len(want) {
			t.Errorf("%q: total %d, -want +got\n%s", query, got.Total, diff)
		}
	}
	if all := w.get("?mesh=open"); all.Total < 3 {
		t.Errorf("without a list, there are only %d edges", all.Total)
	}
}

// TestPages checks that pages of any size add up to the whole answer.
func TestPages(t *testing.T) {
	w := newWorld(t)
	for _, query := range []string{"?all=true", "?mesh=shop&all=true", "?to=backend&all=true", ""} {
		whole := w.get(query)
		for size := 1; size <= whole.Total; size++ {
			var all []api.Edge
			next, pages := "?size="+string(rune('0'+size%10)), 0
			if size > 9 {
				next = "?size=10"
			}
			if query != "" {
				next += "&" + query[1:]
			}
			for next != "" {
				page := w.get(next)
				if pages > 0 && len(page.Services) > 0 {
					t.Errorf("%q: a further page has services", next)
				}
				all, pages = append(all, page.Edges...), pages+1
				next = ""
				if page.Next != nil {
					next = strings.TrimPrefix(*page.Next, "/v1/edges")
				}
			}
			if diff := cmp.Diff(whole.Edges, all); diff != "" {
				t.Fatalf("%q by %d: -want +got\n%s", query, size, diff)
			}
		}
	}
}

// TestServices checks the services with their numbers.
func TestServices(t *testing.T) {
	w := newWorld(t)
	w.connect("shop", "backend-2")
	got := w.get("?mesh=shop").Services
	want := []api.EdgeService{
		{Mesh: "shop", Name: "backend", Kind: "ServiceTag", Protocol: "http", Zones: []string{"default"},
			Tags:       map[string]string{"team": "b", "kuma.io/protocol": "http"},
			Dataplanes: 2, Connected: 1, Destinations: []string{"backend", "MeshService/backend:80"}, Calls: 1, CalledBy: 1},
		{Mesh: "shop", Name: "redis", Kind: "ServiceTag", Protocol: "tcp", Zones: []string{"default"},
			Tags: map[string]string{}, Dataplanes: 1, Destinations: []string{"redis", "MeshService/redis:6379"}, CalledBy: 2},
		{Mesh: "shop", Name: "web", Kind: "ServiceTag", Protocol: "http", Zones: []string{"default"},
			Tags: map[string]string{"team": "a", "kuma.io/protocol": "http"}, Dataplanes: 1,
			Destinations: []string{"web", "MeshService/web:80"}, Calls: 2},
	}
	for i := range got {
		got[i].Destinations = slices.DeleteFunc(got[i].Destinations, func(d string) bool { return strings.Contains(d, "/") })
	}
	for i := range want {
		want[i].Destinations = want[i].Destinations[:1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestVisible checks that hidden dataplanes have no effect on the answer.
func TestVisible(t *testing.T) {
	w := newWorld(t)
	w.connect("shop", "web-1")
	w.counts["shop.web-1"] = api.ProxyCounts{Refused: 7, Uptime: time.Minute,
		Outbounds: map[string]api.OutboundCounts{"outbound:127.0.0.1:7001": {Requests: 5}}}
	w.edges.Observe(w.counts)
	w.hidden[resource.Key{Kind: "Dataplane", Mesh: "shop", Name: "web-1"}] = true
	w.hidden[resource.Key{Kind: "Dataplane", Mesh: "other", Name: "a"}] = true
	got := w.get("?all=true")
	if diff := cmp.Diff([]string{"shop backend > backend denied unreachable", "shop backend > redis denied",
		"shop backend > web denied unreachable", "shop redis > backend denied unreachable",
		"shop redis > redis denied unreachable", "shop redis > web denied unreachable"}, lines(got.Edges)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(got.Refused) > 0 || got.Counters.Since != nil || !got.Counters.Complete {
		t.Errorf("%+v %+v", got.Refused, got.Counters)
	}
	for _, s := range got.Services {
		if s.Mesh != "shop" || s.Name == "web" && (s.Dataplanes != 0 || s.Connected != 0 || s.Calls != 0) {
			t.Errorf("%+v", s)
		}
	}
}

// TestTraffic checks the counters of edges, and that requests share them.
func TestTraffic(t *testing.T) {
	w := newWorld(t)
	w.connect("shop", "web-1")
	w.connect("shop", "backend-1")
	w.connect("shop", "backend-2")
	w.counts["shop.web-1"] = api.ProxyCounts{Uptime: 90 * time.Second,
		Outbounds: map[string]api.OutboundCounts{
			"outbound:127.0.0.1:7001": {Connections: 2, Requests: 40, Failed: 3},
			"outbound:127.0.0.1:7002": {Connections: 9},
			"outbound:passthrough:v4": {Connections: 1}, "outbound:1.2.3.4:5": {Connections: 1},
		},
		Clusters: map[string]api.ClusterCounts{"backend": {Refused: 4}, "redis": {Unconnected: 8}, "gone": {Refused: 1}}}
	w.counts["shop.backend-1"] = api.ProxyCounts{Uptime: time.Hour}
	got := w.get("?mesh=shop")
	for _, e := range got.Edges {
		want := map[string][4]uint64{"web > backend": {40, 3, 4, 1}, "web > redis": {9, 8, 0, 1},
			"backend > redis": {0, 0, 0, 1}}[e.From+" > "+e.To]
		if n := [4]uint64{e.Requests, e.Failed, e.Refused, uint64(e.Counted)}; n != want {
			t.Errorf("%s to %s: %v, want %v", e.From, e.To, n, want)
		}
	}
	c := got.Counters
	if c.Complete || c.Silent != 1 || c.Why != "connected Envoys that do not report their counters: 1" ||
		c.Since == nil || !c.Since.Equal(w.now.Add(-time.Hour)) {
		t.Errorf("%+v", c)
	}
	w.get("")
	w.get("?from=web")
	if w.reads != 1 {
		t.Errorf("%d reads of the counters", w.reads)
	}
	w.now = w.now.Add(5 * time.Second)
	if w.get(""); w.reads != 2 {
		t.Errorf("%d reads of the counters after 5 s", w.reads)
	}
}

// TestChanges checks that the answer follows the mesh.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	w.get("")
	w.set("shop", strings.ReplaceAll(shop, "action: Allow", "action: Deny"))
	if got := lines(w.get("?from=web&to=backend").Edges); len(got) != 1 ||
		got[0] != "shop web > backend denied web-to-backend spec.from[0].default" {
		t.Errorf("%q", got)
	}
	w.set("shop", strings.ReplaceAll(shop, "kind: MeshService, name: backend", "kind: MeshSubset, tags: {version: v2}"))
	got := w.get("?from=web&to=backend").Edges[0]
	if got.Permission != api.EdgePartly || !strings.HasPrefix(got.Why, "some proxies or ports are denied: ") ||
		!strings.Contains(got.Why, "; others are allowed: allowed by MeshTrafficPermission/web-to-backend") {
		t.Errorf("%+v", got)
	}
	w.set("shop", strings.ReplaceAll(shop, "{port: 7001, tags: {kuma.io/service: backend}}",
		"{port: 7001, tags: {kuma.io/service: web}}"))
	if got := w.get("?from=web&to=backend").Edges[0]; got.Reach || !strings.Contains(got.Why, "; no outbound: ") {
		t.Errorf("%+v", got)
	}
	delete(w.meshes, "other")
	if got := w.get(""); slices.ContainsFunc(got.Services, func(s api.EdgeService) bool { return s.Mesh == "other" }) {
		t.Error("a deleted mesh remains")
	}
}

// TestProblems checks the answers to invalid requests.
func TestProblems(t *testing.T) {
	w := newWorld(t)
	for query, want := range map[string]int{
		"mesh=missing": 404, "size=0": 400, "size=x": 400, "offset=-1": 400, "all=maybe": 400,
	} {
		e := w.edges.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/edges?"+query, nil), 100,
			func(resource.Key) bool { return true })
		if e == nil || e.Status != want {
			t.Errorf("%s: %v, want %d", query, e, want)
		}
	}
	none := edgesapi.New(edgesapi.Options{Meshes: func() map[string]*generate.Mesh { return nil }, Now: time.Now})
	if e := none.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/edges", nil), 100,
		func(resource.Key) bool { return true }); e == nil || e.Status != http.StatusServiceUnavailable {
		t.Errorf("%v", e)
	}
	// Names with any characters are compared, and never interpreted.
	for _, name := range []string{"\u202e", "<b>", "../..", strings.Repeat("x", 10_000)} {
		if got := w.get("?from=" + url.QueryEscape(name)); got.Total != 0 {
			t.Errorf("%q: %d edges", name, got.Total)
		}
	}
}

// TestRefused checks the history of refused connections.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	observe := func(after time.Duration, c api.ProxyCounts) {
		w.now = w.now.Add(after)
		redis := api.ProxyCounts{Uptime: 3 * time.Hour, Denied: c.Denied}
		c.Denied = nil
		w.edges.Observe(map[string]api.ProxyCounts{"shop.web-1": c, "shop.redis-1": redis})
	}
	refused := func() (out []string) {
		for _, x := range w.get("").Refused {
			out = append(out, x.From+" > "+x.Destination+" "+strings.Repeat("x", int(x.Count))+" "+x.Last.Format("15:04:05"))
		}
		return out
	}
	// What an old Envoy counted before the first observation has no time.
	observe(0, api.ProxyCounts{Uptime: 2 * time.Hour, Refused: 1000,
		Clusters: map[string]api.ClusterCounts{"backend": {Refused: 500}}})
	if got := refused(); got != nil {
		t.Errorf("%q", got)
	}
	observe(time.Minute, api.ProxyCounts{Uptime: 2 * time.Hour, Refused: 1002,
		Clusters: map[string]api.ClusterCounts{"backend": {Refused: 501}, "removed": {Refused: 1}},
		Denied:   map[string]uint64{"6379": 3}})
	if diff := cmp.Diff([]string{" > redis xxx 12:01:00", "web >  xx 12:01:00", "web > backend x 12:01:00"},
		refused()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// A new process counts from 0.
	observe(30*time.Minute, api.ProxyCounts{Uptime: time.Minute, Refused: 1})
	if diff := cmp.Diff([]string{"web >  xxx 12:31:00", " > redis xxx 12:01:00", "web > backend x 12:01:00"},
		refused()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	observe(29*time.Minute, api.ProxyCounts{Uptime: time.Hour, Refused: 1})
	w.now = w.now.Add(time.Minute)
	if diff := cmp.Diff([]string{"web >  x 12:31:00"}, refused()); diff != "" {
		t.Errorf("after an hour: -want +got\n%s", diff)
	}
}
