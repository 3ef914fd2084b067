package api

import "strings"

const paging = " size offset"

// QueryParameters returns the names of the query parameters of a route of the API, separated by
// spaces.
func QueryParameters(method, pattern string) string {
	switch method + " " + pattern {
	case "GET /livez", "GET /readyz":
		return "verbose"
	case "GET /v1/access/can", "POST /v1/access/can":
		return "verb kind mesh name feature"
	case "GET /v1/history":
		return "type mesh name author source since" + paging
	case "GET /v1/events":
		return "types mesh"
	case "POST /v1/accesslogs/flush":
		return "mesh dataplane"
	case "GET /v1/logs":
		return "log mesh dataplane since status where by step limit tail follow allNodes"
	case "GET /v1/dns":
		return "mesh name" + paging
	case "GET /v1/debug/pprof":
		return "profile seconds"
	case "GET /v1/trust/records":
		return "signer"
	case "GET /v1/conflicts":
		return "allNodes"
	case "GET /v1/names":
		return "kind mesh prefix"
	case "GET /v1/dataplanes":
		return "include"
	case "GET /v1/dataplanes/{mesh}/{name}/policies":
		return "backend"
	case "GET /v1/edges":
		return "mesh from to all listed" + paging
	case "GET /v1/services":
		return "mesh kind name" + paging
	case "GET /v1/applied/{plural}":
		return "mesh name"
	case "POST /v1/apply":
		return "dryRun omit"
	case "POST /v1/diff":
		return "shadow allNodes mesh dataplane omit delete"
	case "GET /meshes/{mesh}/dataplanes/{name}/_config":
		return "include shadow computed"
	case "GET /meshes/{mesh}/dataplanes/{name}/_rules":
		return "include shadow"
	case "GET /zones/_overview", "GET /mesh-insights", "GET /meshes/{mesh}/service-insights":
		return paging
	case "GET /{plural}", "GET /meshes/{mesh}/{plural}":
		return "meta" + paging
	}
	has := func(suffix string) bool { return strings.HasSuffix(pattern, suffix) }
	switch {
	case has("/{name}/_config"):
		return "computed"
	case has("/xds"):
		return "include_eds"
	case has("/dataplanes/_overview"):
		return "tag gateway ingress name" + paging
	case has("es/_overview"):
		return "name" + paging
	case has("/v1/history/{plural}/{name}") || !has("/{plural}/{name}"):
		return ""
	case method == "GET":
		return "meta format"
	}
	return "dryRun"
}

// ServedWithoutState reports whether an agent answers requests for a path although its state cannot
// be used. The other paths are about resources, which are then unknown.
func ServedWithoutState(pattern string) bool {
	switch pattern {
	case "/{$}", "/livez", "/readyz", "/metrics", "/v1/status", "/v1/accesslogs", "/v1/logs", "/v1/dns", "/v1/kinds",
		"/v1/schemas/{kind}", "/v1/access/whoami", "/v1/debug/pprof", "/v1/debug/loglevel":
		return true
	}
	return false
}
