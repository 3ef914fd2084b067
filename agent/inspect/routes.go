package inspect

import (
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nearside-mesh/nearside/agent/node"
)

// handler answers one method of one path with a document or a problem.
type handler func(w http.ResponseWriter, r *http.Request) *Error

// routes is every path of the API. Methods are told apart here and not in the patterns, so that a wrong one is
// answered by this package and in JSON.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	on := func(pattern string, methods map[string]handler) {
		mux.Handle(pattern, byMethod(methods))
	}
	get := func(pattern string, h handler) { on(pattern, map[string]handler{http.MethodGet: h}) }
	post := func(pattern string, h handler) { on(pattern, map[string]handler{http.MethodPost: h}) }

	get("/{$}", s.index)
	get("/livez", s.livez)
	get("/readyz", s.readyz)
	if s.opts.Metrics != nil {
		metrics := promhttp.HandlerFor(s.opts.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
		get("/metrics", func(w http.ResponseWriter, r *http.Request) *Error {
			metrics.ServeHTTP(w, r)
			return nil
		})
	}

	get("/v1/status", s.status)
	get("/v1/kinds", s.kinds)
	get("/v1/names", s.names)
	get("/v1/dataplanes", s.proxies)
	get("/v1/dataplanes/{mesh}/{name}/status", s.proxy)
	get("/v1/dataplanes/{mesh}/{name}/policies", s.policies)
	get("/v1/services", s.services)
	get("/v1/applied/{plural}", s.appliedList)
	get("/v1/history/{plural}/{name}", s.history)
	get("/v1/history/{plural}/{mesh}/{name}", s.history)
	post("/v1/apply", s.apply)
	post("/v1/rollback", s.rollback)
	post("/v1/explain", s.explain)
	post("/v1/wait", s.wait)
	post("/v1/diff", s.diff)

	get("/v1/zoneegresses/{name}/status", s.zoneProxy(node.ProxyEgress))
	get("/v1/zoneingresses/{name}/status", s.zoneProxy(node.ProxyIngress))
	get("/zoneegresses/{name}/_config", s.zoneConfig(node.ProxyEgress))
	get("/zoneingresses/{name}/_config", s.zoneConfig(node.ProxyIngress))
	get("/meshes/{mesh}/dataplanes/{name}/_config", s.config)
	get("/meshes/{mesh}/dataplanes/{name}/_rules", s.rules)
	get("/meshes/{mesh}/{plural}/{name}/_hostnames", s.hostnames)
	one := map[string]handler{http.MethodGet: s.get, http.MethodPut: s.put, http.MethodDelete: s.delete}
	get("/{plural}", s.list)
	on("/{plural}/{name}", one)
	get("/meshes/{mesh}/{plural}", s.list)
	on("/meshes/{mesh}/{plural}/{name}", one)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, notFound("nothing is served at %q; the paths are in docs/api.md", r.URL.Path))
	})
	return mux
}

func byMethod(methods map[string]handler) http.Handler {
	var allowed []string
	for m := range methods {
		allowed = append(allowed, m)
		if m == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := r.Method
		if m == http.MethodHead {
			m = http.MethodGet // net/http leaves the body out
		}
		h, ok := methods[m]
		if !ok {
			w.Header().Set("Allow", allow)
			writeError(w, problem(http.StatusMethodNotAllowed, ProblemMethod, "Method not allowed",
				"%s is not possible at %q; allowed: %s", r.Method, r.URL.Path, allow))
			return
		}
		if e := h(w, r); e != nil {
			writeError(w, e)
		}
	})
}
