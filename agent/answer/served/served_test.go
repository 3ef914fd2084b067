package served_test

import (
	"strings"
	"testing"

	"github.com/nearside-mesh/nearside/agent/answer/served"
)

const (
	was = `{"xds": {
"type.googleapis.com/envoy.config.listener.v3.Listener": {
  "outbound:241.0.0.9:80": {"name": "outbound:241.0.0.9:80", "metadata": {"a": 1},
    "address": {"socketAddress": {"address": "241.0.0.9", "portValue": 80}},
    "filterChains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typedConfig": {"@type": "t",
      "statPrefix": "x", "routeConfig": {"name": "outbound:web", "virtualHosts": [{"name": "web", "domains": ["b", "a"],
        "routes": [{"name": "hash", "match": {"prefix": "/"}, "route": {"cluster": "shop_web___msvc_80", "timeout": "15s"}}]}]}}}]}]},
  "kuma:dns": {"name": "kuma:dns"}},
"type.googleapis.com/envoy.config.cluster.v3.Cluster": {
  "shop_web___msvc_80": {"name": "shop_web___msvc_80", "type": "EDS"},
  "gone": {"name": "gone", "type": "STATIC"}},
"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment": {
  "shop_web___msvc_80": {"clusterName": "shop_web___msvc_80", "endpoints": [{"lbEndpoints": [{"a": 2}, {"a": 1}]}]}},
"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret": {"ca": {"name": "ca", "x": "old"}}}}`
	same = `{
"type.googleapis.com/envoy.config.listener.v3.Listener": {
  "outbound:240.0.0.1:80": {"name": "outbound:240.0.0.1:80",
    "address": {"socketAddress": {"address": "240.0.0.1", "portValue": 80}},
    "filterChains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typedConfig": {"@type": "t",
      "statPrefix": "y", "rds": {"routeConfigName": "r"}}}]}]}},
"type.googleapis.com/envoy.config.route.v3.RouteConfiguration": {"r": {"name": "r", "validateClusters": false,
  "virtualHosts": [{"name": "web", "domains": ["a", "b"],
    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "shop_web__east_msvc_80", "timeout": "15s"}}]}]}},
"type.googleapis.com/envoy.config.cluster.v3.Cluster": {
  "shop_web__east_msvc_80": {"name": "shop_web__east_msvc_80", "type": "EDS"},
  "gone": {"name": "gone", "type": "STATIC"}},
"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment": {
  "shop_web__east_msvc_80": {"clusterName": "shop_web__east_msvc_80", "endpoints": [{"lbEndpoints": [{"a": 1}, {"a": 2}]}]}},
"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret": {"ca": {"name": "ca", "x": "new"}}}`
)

func parsed(t *testing.T, text string) served.Config {
	t.Helper()
	c, err := served.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSameMeaning compares configs that differ only in what a server may choose.
func TestSameMeaning(t *testing.T) {
	var c served.Comparison
	c.Add("default", "web", parsed(t, was), parsed(t, same))
	if r := c.Report(); r.Differs() || len(r.Proxies) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestGroups compares configs of three proxies that differ in one to three places.
func TestGroups(t *testing.T) {
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(same) }
	var c served.Comparison
	c.Add("default", "a", parsed(t, was), parsed(t, edit(`"15s"`, `"0s"`)))
	c.Add("default", "b", parsed(t, was), parsed(t, edit(`"15s"`, `"0s"`, `"type": "STATIC"`, `"type": "EDS"`)))
	c.Add("default", "c", parsed(t, was), parsed(t, edit(`"gone": {"name": "gone", "type": "STATIC"}`,
		`"more": {"name": "more", "type": "LOGICAL_DNS"}`, `["a", "b"]`, `["a"]`)))
	r := c.Report()
	var lines []string
	for _, g := range r.Groups {
		lines = append(lines, strings.Join([]string{g.Field, g.Action, string(g.Served), string(g.Computed), g.Example[0],
			g.Example[1], strings.Repeat("|", g.Places), strings.Repeat("!", g.Proxies)}, " "))
	}
	const chain = "Listener.filterChains[].filters[http_connection_manager].routeConfig.virtualHosts[]."
	const vip = "outbound:vip-v4(shop_web__east_msvc_80):80"
	want := []string{
		chain + `routes[].route.timeout changed "15s" "0s" default/a ` +
			vip + ` || !!`,
		`Cluster removed {"name":"*"}  default/c gone | !`,
		`Cluster added  {"name":"*"} default/c more | !`,
		`Cluster.type changed "STATIC" "EDS" default/b gone | !`,
		chain + `domains changed ["a","b"] ["a"] default/c ` + vip + ` | !`,
	}
	for _, w := range want {
		found := false
		for _, l := range lines {
			found = found || l == w
		}
		if !found {
			t.Errorf("want %s in\n%s", w, strings.Join(lines, "\n"))
		}
	}
	if len(lines) != len(want) || r.Groups[0].Places != 2 || r.Groups[0].Cause == "" || r.Proxies[2].Differences != 3 {
		t.Errorf("%+v\n%s", r, strings.Join(lines, "\n"))
	}
}

// TestParse checks texts that are no config.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "not JSON",
		"[]":                    "contains no resources",
		`{"xds": {}}`:           "contains no resources",
		`{"configs": []}`:       "resources by type URL",
		`{"xds": {"a": {}}}`:    "resources by type URL",
		`{"total": 1, "x": {}}`: "resources by type URL",
	} {
		if _, err := served.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
