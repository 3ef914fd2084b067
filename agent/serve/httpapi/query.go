package httpapi

import (
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
	case "GET /zoneegresses/{name}/_config", "GET /zoneingresses/{name}/_config":
		return "computed"
	case "GET /meshes/{mesh}/dataplanes/{name}/_config":
		return "include shadow computed"
	case "GET /meshes/{mesh}/dataplanes/{name}/_rules":
		return "include shadow"
	case "GET /meshes/{mesh}/dataplanes/{name}/xds", "GET /zoneegresses/{name}/xds", "GET /zoneingresses/{name}/xds",
		"GET /zone-ingresses/{name}/xds":
		return "include_eds"
	case "GET /meshes/{mesh}/dataplanes/_overview", "GET /dataplanes/_overview":
		return "tag gateway ingress name" + pagingQuery
	case "GET /zoneegresses/_overview", "GET /zoneingresses/_overview", "GET /zone-ingresses/_overview":
		return "name" + pagingQuery
	case "GET /zones/_overview", "GET /mesh-insights", "GET /meshes/{mesh}/service-insights":
		return pagingQuery
	case "GET /{plural}", "GET /meshes/{mesh}/{plural}":
		return "meta" + pagingQuery
	}
	if strings.HasSuffix(x.pattern, "/{plural}/{name}") {
		if x.method == http.MethodGet {
			return "meta format"
		}
		return "dryRun"
	}
	return ""
}

// checkQuery returns the answer to a request with a query parameter that its route does not have.
func (x *route) checkQuery(r *http.Request) *api.Error {
	if r.URL.RawQuery == "" {
		return nil
	}
	known := strings.Fields(x.parameters())
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if slices.Contains(known, name) {
			continue
		}
		allowed := "this path has no query parameters"
		if len(known) > 0 {
			allowed = "this path has " + strings.Join(known, ", ")
		}
		return api.NewInvalid("unknown query parameter "+name+"; "+allowed,
			api.InvalidParameter{Field: name, Reason: "unknown; " + allowed})
	}
	return nil
}
