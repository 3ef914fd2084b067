package danger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/danger"
	"github.com/nearside-mesh/nearside/agent/test/envoytest"
)

// object is a JSON object.
type object = map[string]any

// typed returns a packed message.
func typed(name string, fields object) object {
	out := object{"@type": "type.googleapis.com/" + name}
	for k, v := range fields {
		out[k] = v
	}
	return out
}

// live is a danger in the config of a real Envoy: a cluster, an HTTP filter, an access log, or a
// route, and the effect of a request.
type live struct {
	name                           string
	cluster, filter, logger, route object
	answer                         string // that the response contains
	file                           string // that exists after the request; a pattern
}

// livePieces returns dangers that use files in a directory, and the socket of Envoy's admin
// interface.
func livePieces(dir, admin string) []live {
	lua := func(file string) string {
		return fmt.Sprintf("function envoy_on_request(h) os.execute('touch %s/%s') end", dir, file)
	}
	const luaType = "envoy.extensions.filters.http.lua.v3.Lua"
	match := object{"prefix": "/"}
	body := func(source object) object {
		return object{"match": match, "directResponse": object{"status": 200, "body": source}}
	}
	endpoint := func(address object) object {
		return object{"clusterName": "c",
			"endpoints": []any{object{"lbEndpoints": []any{object{"endpoint": object{"address": address}}}}}}
	}
	return []live{
		{name: "body from a file", route: body(object{"filename": dir + "/secret"}), answer: "content of a file"},
		{name: "body from the environment", route: body(object{"environmentVariable": "NEARSIDE_DANGER"}),
			answer: "from the environment"},
		{name: "environment in a header", answer: "from the environment", route: object{"match": match,
			"directResponse":       object{"status": 200},
			"responseHeadersToAdd": []any{object{"header": object{"key": "x", "value": "%ENVIRONMENT(NEARSIDE_DANGER)%"}}}}},
		{name: "admin interface by a pipe", answer: "Envoy Admin",
			cluster: object{"loadAssignment": endpoint(object{"pipe": object{"path": admin}})}},
		{name: "lua", file: "lua", filter: typed(luaType, object{"defaultSourceCode": object{"inlineString": lua("lua")}})},
		{name: "lua in a typed struct", file: "struct", filter: typed("xds.type.v3.TypedStruct", object{
			"typeUrl": "type.googleapis.com/" + luaType, "value": object{"inline_code": lua("struct")}})},
		{name: "lua in a matcher", file: "matcher",
			route: object{"directResponse": object{"status": 200}, "match": object{"prefix": "/",
				"headers": []any{object{"name": ":path", "stringMatch": object{"custom": object{"name": "lua",
					"typedConfig": typed("envoy.extensions.string_matcher.lua.v3.Lua",
						object{"sourceCode": object{"inlineString": "function envoy_match(s) " +
							"os.execute('touch " + dir + "/matcher') return true end"}})}}}}}}},
		{name: "access log", file: "access.log", logger: typed("envoy.extensions.access_loggers.file.v3.FileAccessLog",
			object{"path": dir + "/access.log"})},
		{name: "tap", file: "tap_*", filter: typed("envoy.extensions.filters.http.tap.v3.Tap", object{"commonConfig": object{
			"staticConfig": object{"matchConfig": object{"anyMatch": true}, "outputConfig": object{"sinks": []any{
				object{"format": "JSON_BODY_AS_STRING", "filePerTap": object{"pathPrefix": dir + "/tap"}}}}}}})},
		{name: "log of health checks", file: "health.log",
			cluster: object{"loadAssignment": endpoint(object{"socketAddress": object{
				"address": "192.0.2.1", "portValue": 1}}), "healthChecks": []any{object{"timeout": "0.1s", "interval": "0.1s",
				"unhealthyThreshold": 1, "healthyThreshold": 1, "tcpHealthCheck": object{}, "alwaysLogHealthCheckFailures": true,
				"eventLogPath": dir + "/health.log"}}}},
	}
}

// doc returns the piece as a MeshProxyPatch.
func (p *live) doc() string {
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	switch {
	case p.cluster != nil:
		return mod("cluster", "operation: Patch", text(p.cluster))
	case p.filter != nil:
		return mod("httpFilter", "operation: AddFirst", text(object{"name": "x", "typedConfig": p.filter}))
	case p.logger != nil:
		return mod("listener", "operation: Patch",
			text(object{"accessLog": []any{object{"name": "x", "typedConfig": p.logger}}}))
	}
	return mod("virtualHost", "operation: Patch", text(object{"routes": []any{p.route}}))
}

// bootstrap returns the config of an Envoy with the piece.
func (p *live) bootstrap(admin string, port int) ([]byte, error) {
	address := object{"socketAddress": object{"address": "127.0.0.1", "portValue": port}}
	route := object{"match": object{"prefix": "/"}, "directResponse": object{"status": 200}}
	var clusters, filters, loggers []any
	if p.cluster != nil {
		p.cluster["name"], p.cluster["connectTimeout"], clusters = "c", "1s", append(clusters, p.cluster)
		route = object{"match": object{"prefix": "/"}, "route": object{"cluster": "c"}}
	}
	if p.filter != nil {
		filters = append(filters, object{"name": "x", "typedConfig": p.filter})
	}
	if p.logger != nil {
		loggers = append(loggers, object{"name": "x", "typedConfig": p.logger})
	}
	if p.route != nil {
		route = p.route
	}
	filters = append(filters,
		object{"name": "r", "typedConfig": typed("envoy.extensions.filters.http.router.v3.Router", nil)})
	manager := typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", object{
		"statPrefix": "a", "httpFilters": filters, "accessLog": loggers,
		"routeConfig": object{"virtualHosts": []any{object{"name": "a", "domains": []any{"*"}, "routes": []any{route}}}}})
	return json.Marshal(object{"admin": object{"address": object{"pipe": object{"path": admin}}},
		"staticResources": object{"clusters": clusters, "listeners": []any{object{"name": "l", "address": address,
			"filterChains": []any{object{"filters": []any{object{"name": "m", "typedConfig": manager}}}}}}}})
}

// TestDangersInEnvoy checks that dangers have their effect in a real Envoy, and that patches with
// them need the feature.
func TestDangersInEnvoy(t *testing.T) {
	path := envoytest.Find(t)
	t.Setenv("NEARSIDE_DANGER", "from the environment")
	for i := range livePieces("", "") {
		dir := t.TempDir()
		admin := filepath.Join(dir, "admin.sock")
		p := livePieces(dir, admin)[i]
		t.Run(p.name, func(t *testing.T) {
			if len(danger.Of(decode(t, p.doc()))) == 0 {
				t.Errorf("the patch needs no feature:\n%s", p.doc())
			}
			if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("content of a file"), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			port := l.Addr().(*net.TCPAddr).Port
			l.Close()
			e := envoytest.Start(t, path, admin, func(admin string) ([]byte, error) { return p.bootstrap(admin, port) })
			defer e.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for !p.shows(ctx, dir, fmt.Sprintf("http://127.0.0.1:%d/", port)) {
				if ctx.Err() != nil {
					t.Fatal("the danger has no effect")
				}
			}
		})
	}
}

// shows sends a request and reports whether the danger has had its effect.
func (p *live) shows(ctx context.Context, dir, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer got.Body.Close()
	body, _ := io.ReadAll(got.Body)
	files, _ := filepath.Glob(filepath.Join(dir, p.file))
	return p.answer != "" && strings.Contains(string(body)+fmt.Sprint(got.Header), p.answer) ||
		p.file != "" && len(files) > 0
}
