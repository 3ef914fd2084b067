package envoy_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/nearside-mesh/nearside/agent/compute/match"
)

// wireManager returns a filter chain with an HTTP connection manager that has the additional
// fields, filters, and routes. Each of them is YAML on one line.
func wireManager(fields string, filters string, routes ...string) string {
	if len(routes) == 0 {
		routes = []string{"{match: {prefix: /}, route: {cluster: up}}"}
	}
	if filters != "" {
		filters += ", "
	}
	return fmt.Sprintf(`{filters: [{name: hcm, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: s, %s
http_filters: [%s{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}],
route_config: {virtual_hosts: [{name: a, domains: ["*"], request_headers_to_add: [{header: {key: x-host, value: of-host}}], routes: [%s]}], request_headers_to_add: [{header: {key: x-all, value: of-all}}]}}}]}`,
		fields, filters, strings.Join(routes, ",\n"))
}

const (
	wireFault   = `{name: fault, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault%s}}`
	wireTCP     = `{filters: [{name: tcp, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: speaks}}]}`
	wireInspect = `listener_filters: [{name: inspector, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}}], listener_filters_timeout: 0.05s, `
)

// wireListeners maps a listener's name to its filter chain and to additional listener fields.
var wireListeners = map[string][2]string{
	"plain": {wireManager("", "",
		`{match: {path: /on}, route: {cluster: up, upgrade_configs: [{upgrade_type: WebSocket}]}}`,
		`{match: {prefix: /}, route: {cluster: up}}`)},
	"few": {wireManager("", "", `{match: {prefix: /there}, route: {cluster: up}}`)},
	"open": {wireManager("upgrade_configs: [{upgrade_type: websocket}, {upgrade_type: CONNECT}], "+
		"http_protocol_options: {accept_http_10: true},", "",
		`{match: {path: /off}, route: {cluster: up, upgrade_configs: [{upgrade_type: websocket, enabled: false}]}}`,
		`{match: {prefix: /}, route: {cluster: up}}`)},
	"routes": {wireManager("", "",
		`{match: {prefix: /prefix/}, route: {cluster: up, prefix_rewrite: /new/}}`,
		`{match: {path_separated_prefix: /parts}, route: {cluster: up, prefix_rewrite: /new}}`,
		`{match: {path: /exact}, route: {cluster: up, prefix_rewrite: /other}}`,
		`{match: {prefix: /FOLD, case_sensitive: false}, route: {cluster: up, prefix_rewrite: /new}}`,
		`{match: {safe_regex: {regex: "/item/.*"}}, route: {cluster: up, regex_rewrite: {pattern: {regex: "^/item/([^/]+)"}, substitution: "/things/\\1"}}}`,
		`{match: {prefix: /host}, route: {cluster: up, host_rewrite_literal: other.example, append_x_forwarded_host: true}}`,
		`{match: {prefix: /by-header}, route: {cluster: up, host_rewrite_header: x-to}}`,
		`{match: {prefix: /auto}, route: {cluster: named, auto_host_rewrite: true}}`,
		`{match: {prefix: /headers}, route: {cluster: up}, request_headers_to_remove: [x-secret], request_headers_to_add: [{header: {key: x-a, value: "2"}}, {header: {key: x-b, value: "100%%"}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}, {header: {key: x-c, value: new}, append_action: ADD_IF_ABSENT}, {header: {key: x-host, value: of-route}}]}`,
		`{match: {prefix: /weighted}, route: {weighted_clusters: {clusters: [{name: up, weight: 1, host_rewrite_literal: one.example, request_headers_to_add: [{header: {key: x-w, value: w}}]}]}, prefix_rewrite: /w}}`,
		`{match: {prefix: /mirrored}, route: {cluster: up, request_mirror_policies: [{cluster: copies}], prefix_rewrite: /m}}`,
		`{match: {prefix: /moved/}, redirect: {prefix_rewrite: /new/, host_redirect: other.example, response_code: FOUND}}`,
		`{match: {path: /moved-all}, redirect: {path_redirect: "/x?y=1", https_redirect: true}}`,
		`{match: {prefix: /answer}, direct_response: {status: 418}}`)},
	"faults": {wireManager("", fmt.Sprintf(wireFault,
		`, abort: {http_status: 418, percentage: {numerator: 100}}, headers: [{name: x-from, string_match: {exact: web}}]`)+
		", "+fmt.Sprintf(wireFault, `, delay: {fixed_delay: 0.001s, percentage: {numerator: 100}}, abort: {http_status: 503, percentage: {numerator: 0}}`))},
	"limited": {wireManager("", `{name: limit, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: l,
token_bucket: {max_tokens: 1, fill_interval: 3600s}, filter_enabled: {default_value: {numerator: 100}}, filter_enforced: {default_value: {numerator: 100}}}}`)},
	"bytes":     {wireTCP},
	"closing":   {wireTCP, wireInspect},
	"going on":  {wireTCP, wireInspect + "continue_on_listener_filters_timeout: true, "},
	"silent":    {wireManager("", "")},
	"inspected": {wireManager("", ""), wireInspect + "continue_on_listener_filters_timeout: true, "},
}

// wireRows lists requests with their expected results. A real Envoy must have the same results, if
// one is available.
var wireRows = []struct {
	name, listener string
	first          match.FirstBytes
	req            match.Request
	status         uint32 // from Envoy or from the upstream
	path, host     string // that the upstream receives; "" if it receives no request
	headers        string // x- headers that the upstream receives
	location       string
}{
	{"a request", "plain", match.HTTP11, match.Request{}, 200, "/", "a.com", "x-all=of-all x-host=of-host", ""},
	{"HTTP/1.0", "plain", match.HTTP10, match.Request{}, 426, "", "", "", ""},
	{"HTTP/1.0 that is taken", "open", match.HTTP10, match.Request{}, 200, "/",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"HTTP/1.0 without a host", "open", match.HTTP10, match.Request{Host: "-"}, 400, "", "", "", ""},
	{"an upgrade", "plain", match.HTTP11, upgrading("websocket", "/"), 403, "", "", "", ""},
	{"an upgrade without a route", "few", match.HTTP11, upgrading("websocket", "/"), 404, "", "", "", ""},
	{"an upgrade in place of a redirect", "routes", match.HTTP11, upgrading("websocket", "/moved/x"), 403, "", "", "", ""},
	{"an upgrade in place of an answer", "routes", match.HTTP11, upgrading("websocket", "/answer"), 403, "", "", "", ""},
	{"an upgrade in place of a fault", "faults", match.HTTP11,
		match.Request{Headers: append(upgrading("websocket", "/").Headers, match.Header{Name: "x-from", Value: "web"})}, 403,
		"", "", "", ""},
	{"an upgrade that the route takes", "plain", match.HTTP11, upgrading("websocket", "/on"), 101, "/on",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"an upgrade that is taken", "open", match.HTTP11, upgrading("WebSocket", "/"), 101, "/",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"an upgrade that the route does not take", "open", match.HTTP11, upgrading("websocket", "/off"), 403, "", "", "", ""},
	{"an upgrade to something else", "open", match.HTTP11, upgrading("spdy/3.1", "/"), 403, "", "", "", ""},
	{"an upgrade to h2c is ignored", "plain", match.HTTP11, upgrading("h2c", "/"), 200, "/",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"CONNECT", "plain", match.HTTP11, match.Request{Method: "CONNECT", Host: "b.com:443"}, 404, "", "", "", ""},
	{"CONNECT without a route for it", "open", match.HTTP11, match.Request{Method: "CONNECT", Host: "b.com:443"}, 404, "",
		"", "", ""},
	{"a prefix", "routes", match.HTTP11, match.Request{Path: "/prefix/a?b=/prefix/"}, 200, "/new/a?b=/prefix/",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"a prefix in parts", "routes", match.HTTP11, match.Request{Path: "/parts/a"}, 200, "/new/a",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"a prefix in parts alone", "routes", match.HTTP11, match.Request{Path: "/parts?x"}, 200, "/new?x",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"an exact path", "routes", match.HTTP11, match.Request{Path: "/exact?x"}, 200, "/other?x",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"a prefix in another case", "routes", match.HTTP11, match.Request{Path: "/fold/a"}, 200, "/new/a",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"a regex", "routes", match.HTTP11, match.Request{Path: "/item/7/x?y"}, 200, "/things/7/x?y",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"another host", "routes", match.HTTP11, match.Request{Path: "/host"}, 200, "/host",
		"other.example", "x-all=of-all x-forwarded-host=a.com x-host=of-host", ""},
	{"a host by a header", "routes", match.HTTP11,
		match.Request{Path: "/by-header", Headers: []match.Header{{Name: "x-to", Value: "third.example"}}}, 200,
		"/by-header", "third.example", "x-all=of-all x-host=of-host x-to=third.example", ""},
	{"a host by a header that is missing", "routes", match.HTTP11, match.Request{Path: "/by-header"}, 200, "/by-header",
		"a.com", "x-all=of-all x-host=of-host", ""},
	{"the name of the endpoint", "routes", match.HTTP11, match.Request{Path: "/auto"}, 200, "/auto",
		"localhost", "x-all=of-all x-host=of-host", ""},
	{"headers", "routes", match.HTTP11, match.Request{Path: "/headers", Headers: []match.Header{{Name: "x-a", Value: "1"},
		{Name: "X-B", Value: "1"}, {Name: "x-c", Value: "old"}, {Name: "x-secret", Value: "7"}}},
		200, "/headers", "a.com", "x-a=1 x-a=2 x-all=of-all x-b=100% x-c=old x-host=of-host x-host=of-route", ""},
	{"a cluster with its own host and headers", "routes", match.HTTP11, match.Request{Path: "/weighted/a"}, 200, "/w/a",
		"one.example", "x-all=of-all x-host=of-host x-w=w", ""},
	{"a copy", "routes", match.HTTP11, match.Request{Path: "/mirrored/a", Host: "a.com:81"}, 200, "/m/a", "a.com:81",
		"x-all=of-all x-host=of-host", ""},
	{"a redirect", "routes", match.HTTP11, match.Request{Path: "/moved/a?b"}, 302, "", "", "",
		"http://other.example/new/a?b"},
	{"a redirect with its own query", "routes", match.HTTP11, match.Request{Path: "/moved-all?b"}, 301, "", "", "",
		"https://a.com/x?y=1"},
	{"an answer", "routes", match.HTTP11, match.Request{Path: "/answer"}, 418, "", "", "", ""},
	{"no route", "routes", match.HTTP11, match.Request{Path: "/none"}, 404, "", "", "", ""},
	{"aborted", "faults", match.HTTP11, match.Request{Headers: []match.Header{{Name: "x-from", Value: "web"}}}, 418, "",
		"", "", ""},
	{"not aborted", "faults", match.HTTP11, match.Request{Headers: []match.Header{{Name: "x-from", Value: "api"}}}, 200,
		"/", "a.com", "x-all=of-all x-from=api x-host=of-host", ""},
	{"below the limit", "limited", match.HTTP11, match.Request{}, 200, "/", "a.com", "x-all=of-all x-host=of-host", ""},
}

func upgrading(to, path string) match.Request {
	return match.Request{Path: path,
		Headers: []match.Header{{Name: "Connection", Value: "Upgrade"}, {Name: "Upgrade", Value: to}}}
}

// wireSilent lists the results for clients that wait for the server to speak.
var wireSilent = []struct {
	listener string
	outcome  match.Outcome
	wait     *match.Wait
}{
	{"bytes", match.Forwarded, nil},
	{"closing", match.TimedOut, &match.Wait{Filter: "inspector", After: 50 * time.Millisecond, Closes: true}},
	{"going on", match.Forwarded, &match.Wait{Filter: "inspector", After: 50 * time.Millisecond}},
	{"silent", match.Broken, nil},
	{"inspected", match.Broken, &match.Wait{Filter: "inspector", After: 50 * time.Millisecond}},
}
