package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

const pagingQuery = " size offset"

// parameters returns the names of the query parameters of a route, separated by spaces.
func (x *route) parameters() string {
	switch x.method + " " + x.pattern {
	case "GET /livez", "GET /readyz":
		return "verbose"
	case "GET /v1/access/can", "POST /v1/access/can":
		return "verb kind mesh name feature"
	case "POST /v1/accesslogs/flush":
		return "mesh dataplane"
	case "GET /v1/logs":
		return "log mesh dataplane since status where by limit allNodes"
	case "GET /v1/dns":
		return "mesh name" + pagingQuery
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
	case "GET /v1/services":
		return "mesh kind name" + pagingQuery
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
		return pagingQuery
	case "GET /{plural}", "GET /meshes/{mesh}/{plural}":
		return "meta" + pagingQuery
	}
	has := func(suffix string) bool { return strings.HasSuffix(x.pattern, suffix) }
	switch {
	case has("/{name}/_config"):
		return "computed"
	case has("/xds"):
		return "include_eds"
	case has("/dataplanes/_overview"):
		return "tag gateway ingress name" + pagingQuery
	case has("es/_overview"):
		return "name" + pagingQuery
	case has("/v1/history/{plural}/{name}") || !has("/{plural}/{name}"):
		return ""
	case x.method == http.MethodGet:
		return "meta format"
	}
	return "dryRun"
}

// checkQuery returns the answer to a request with a query parameter that its route does not have.
func (x *route) checkQuery(r *http.Request) *api.Error {
	known := strings.Fields(x.parameters())
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if slices.Contains(known, name) {
			continue
		}
		allowed := "this path has " + cmp.Or(strings.Join(known, ", "), "no query parameters")
		return api.NewInvalid("unknown query parameter "+name+"; "+allowed,
			api.InvalidParameter{Field: name, Reason: "unknown; " + allowed})
	}
	return nil
}
