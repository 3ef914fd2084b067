package httpapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/nearside-mesh/nearside/agent/model/api"
)

// checkQuery returns the answer to a request with a query parameter that its route does not have.
func (x *route) checkQuery(r *http.Request) *api.Error {
	known := strings.Fields(api.QueryParameters(x.method, x.pattern))
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
