package httpapi

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nearside-mesh/nearside/agent/model/access"
	"github.com/nearside-mesh/nearside/agent/model/api"
	"github.com/nearside-mesh/nearside/agent/model/node"
	"github.com/nearside-mesh/nearside/agent/serve/audited"
	"github.com/nearside-mesh/nearside/agent/serve/httpjson"
	"github.com/nearside-mesh/nearside/agent/serve/params"
	"github.com/nearside-mesh/nearside/agent/serve/sender"
)

// handler answers one method of one path with a document or a problem.
type handler func(w http.ResponseWriter, r *http.Request) *api.Error

// route is one method of one path, with the permission that it needs.
type route struct {
	method, pattern string
	need            need
	handle          handler
}

// table returns all routes of the API.
func (s *Server) table() []route {
	const get, put, post, del = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	inspect, about, operate := ofPath(access.VerbInspect), inspects(access.KindAgent), updates(access.KindAgent)
	dataplane, egress, ingress := inspects(kindDataplane), inspects(node.ProxyEgress.Kind()),
		inspects(node.ProxyIngress.Kind())
	config := func(h handler) handler { return s.shared(&s.configs, s.limits.Configs, h) }
	compare := func(h handler) handler { return s.shared(&s.compares, s.limits.Comparisons, h) }
	one := func(pattern string) []route {
		return []route{
			{get, pattern, ofPath(access.VerbGet), s.get},
			{put, pattern, ofPath(access.VerbCreate, access.VerbUpdate), s.longer(s.put)},
			{del, pattern, ofPath(access.VerbDelete), s.longer(s.delete)},
		}
	}
	out := []route{
		{get, "/{$}", anyone, s.index},
		{get, "/livez", anyone, s.livez},
		{get, "/readyz", anyone, s.readyz},

		{get, "/v1/access", inspect, s.roles},
		{get, "/v1/access/whoami", connected, s.whoami},
		{get, "/v1/access/can", connected, s.whetherCan},
		{post, "/v1/access/can", connected, s.whetherCan},

		{get, "/v1/status", inspect.orSome(), s.status},
		{get, "/v1/events", reader, s.shared(&s.streams, s.limits.Events, s.watchEvents)},
		{get, "/v1/accesslogs", inspect.orSome(), s.accessLogs},
		{post, "/v1/accesslogs/flush", inspect.orSome(), s.shared(&s.waits, s.limits.Waits, s.flushLogs)},
		{get, "/v1/logs", ofPath(access.VerbReadLogs).orSome(), s.logs},
		{get, "/v1/dns", inspect.orSome(), s.dns},
		{get, "/v1/debug/pprof", operate, s.shared(&s.waits, s.limits.Waits, s.profile)},
		{get, "/v1/debug/{item}", operate, s.debug},
		{get, "/v1/debug/loglevel", about, s.logLevel},
		{put, "/v1/debug/loglevel", operate, s.setLogLevel},
		{get, "/v1/pool", inspect, s.shared(&s.waits, s.limits.Waits, s.pool)},
		{get, "/v1/refusals", inspect.orSome(), s.refusals},
		{get, "/v1/history", ofPath(access.VerbGet).orSome(), config(s.allHistory)},
		{get, "/v1/members", inspect, s.members},
		{post, "/v1/members/join", operate, s.join},
		{post, "/v1/members/leave", operate, s.leave},
		{post, "/v1/members/forget", operate, s.forget},
		{post, "/v1/members/heal", operate, s.longer(s.heal)},
		{get, "/v1/keyring", about, s.keyring},
		{get, "/v1/trust", about, s.trust},
		{get, "/v1/trust/records", about, s.trustRecords},
		{post, "/v1/trust/anchor", operate, s.anchorTrust},
		{get, "/v1/conflicts", inspect, s.conflicts},
		{post, "/v1/conflicts/restore", reader, s.restoreConflict},
		{get, "/v1/kinds", reader, s.kinds},
		{get, "/v1/names", reader, s.names},
		{get, "/v1/schemas/{kind}", reader, s.schema},
		{get, "/v1/dataplanes", dataplane.orSome(), s.proxies},
		{get, "/v1/dataplanes/{mesh}/{name}/status", dataplane, s.proxy},
		{get, "/v1/dataplanes/{mesh}/{name}/policies", dataplane, s.policies},
		{get, "/v1/dataplanes/{mesh}/{name}/backends", dataplane, config(s.backends)},
		{get, "/v1/dataplanes/{mesh}/{name}/sources", dataplane, compare(s.sources)},
		{get, "/v1/services", inspect.orSome(), s.services},
		{get, "/v1/edges", dataplane.orSome(), config(s.edges)},
		{get, "/v1/applied/{plural}", inspect.orSome(), s.appliedList},
		{get, "/v1/history/{plural}/{name}", ofPath(access.VerbGet), s.history},
		{get, "/v1/history/{plural}/{mesh}/{name}", ofPath(access.VerbGet), s.history},
		{post, "/v1/apply", reader, s.longer(s.apply)},
		{post, "/v1/rollback", reader, s.longer(s.rollback)},
		{post, "/v1/versions", reader, s.versions},
		{post, "/v1/records", reader, s.longer(s.records)},
		{post, "/v1/explain", inspect.orSome(), compare(s.explain)},
		{post, "/v1/wait", inspect.orSome(), s.shared(&s.waits, s.limits.Waits, s.wait)},
		{post, "/v1/diff", inspect.orSome(), compare(s.longer(s.diff))},

		{get, "/v1/zoneegresses/{name}/status", egress, s.zoneProxy(node.ProxyEgress)},
		{get, "/v1/zoneingresses/{name}/status", ingress, s.zoneProxy(node.ProxyIngress)},
		{get, "/zoneegresses/{name}/_config", egress, config(s.zoneConfig(node.ProxyEgress))},
		{get, "/zoneingresses/{name}/_config", ingress, config(s.zoneConfig(node.ProxyIngress))},
		{get, "/meshes/{mesh}/dataplanes/{name}/_config", dataplane, config(s.config)},
		{get, "/meshes/{mesh}/dataplanes/{name}/_rules", dataplane, config(s.rules)},
		{get, "/meshes/{mesh}/{plural}/{name}/_hostnames", inspect, s.hostnames},
		{get, "/meshes/{mesh}/dataplanes/{name}/xds", dataplane, config(s.envoyConfig(node.ProxyDataplane))},
		{get, "/meshes/{mesh}/dataplanes/{name}/stats", dataplane, config(s.envoyText(node.ProxyDataplane, Envoy.Stats))},
		{get, "/meshes/{mesh}/dataplanes/{name}/clusters",
			dataplane, config(s.envoyText(node.ProxyDataplane, Envoy.Clusters))},
		{get, "/zoneegresses/{name}/xds", egress, config(s.envoyConfig(node.ProxyEgress))},
		{get, "/zoneegresses/{name}/stats", egress, config(s.envoyText(node.ProxyEgress, Envoy.Stats))},
		{get, "/zoneegresses/{name}/clusters", egress, config(s.envoyText(node.ProxyEgress, Envoy.Clusters))},
		{get, "/zoneingresses/{name}/xds", ingress, config(s.envoyConfig(node.ProxyIngress))},
		{get, "/zoneingresses/{name}/stats", ingress, config(s.envoyText(node.ProxyIngress, Envoy.Stats))},
		{get, "/zoneingresses/{name}/clusters", ingress, config(s.envoyText(node.ProxyIngress, Envoy.Clusters))},
		{get, "/zone-ingresses/{name}/xds", ingress, config(s.envoyConfig(node.ProxyIngress))},
		{get, "/zone-ingresses/{name}/stats", ingress, config(s.envoyText(node.ProxyIngress, Envoy.Stats))},
		{get, "/zone-ingresses/{name}/clusters", ingress, config(s.envoyText(node.ProxyIngress, Envoy.Clusters))},
		{get, "/v1/dataplanes/{mesh}/{name}/loggers", dataplane, config(s.loggers(node.ProxyDataplane, false))},
		{put, "/v1/dataplanes/{mesh}/{name}/loggers", updates(node.ProxyDataplane.Kind()),
			config(s.loggers(node.ProxyDataplane, true))},
		{get, "/v1/zoneegresses/{name}/loggers", egress, config(s.loggers(node.ProxyEgress, false))},
		{put, "/v1/zoneegresses/{name}/loggers", updates(node.ProxyEgress.Kind()), config(s.loggers(node.ProxyEgress, true))},
		{get, "/v1/zoneingresses/{name}/loggers", ingress, config(s.loggers(node.ProxyIngress, false))},
		{put, "/v1/zoneingresses/{name}/loggers", updates(node.ProxyIngress.Kind()),
			config(s.loggers(node.ProxyIngress, true))},
		{post, "/v1/dataplanes/{mesh}/{name}/drain", updates(kindDataplane), s.shared(&s.waits, s.limits.Waits, s.drain)},
		{get, "/_resources", reader, s.resourceTypes},
		{get, "/meshes/{mesh}/dataplanes/_overview", dataplane.orSome(), s.overviews(kindDataplane)},
		{get, "/meshes/{mesh}/dataplanes/{name}/_overview", dataplane, s.overview},
		{get, "/dataplanes/_overview", dataplane.orSome(), s.overviews(kindDataplane)},
		{get, "/zoneegresses/_overview", egress.orSome(), s.overviews(node.ProxyEgress.Kind())},
		{get, "/zoneingresses/_overview", ingress.orSome(), s.overviews(node.ProxyIngress.Kind())},
		{get, "/zone-ingresses/_overview", ingress.orSome(), s.overviews(node.ProxyIngress.Kind())},
		{get, "/zones/_overview", reader, s.noZones},
		{get, "/mesh-insights", inspect.orSome(), s.meshInsights},
		{get, "/meshes/{mesh}/service-insights", inspect.orSome(), s.serviceInsights},
		{get, "/meshes/{mesh}/dataplanes/{name}/policies", dataplane, config(s.attached)},
		{get, "/meshes/{mesh}/{plural}/{name}/dataplanes", ofPath(access.VerbInspect), config(s.attachedTo)},
		{post, "/tokens/{kind}", reader, s.noTokens},
		{get, "/{plural}", ofPath(access.VerbList).orSome(), s.list},
		{get, "/meshes/{mesh}/{plural}", ofPath(access.VerbList).orSome(), s.list},
	}
	if s.opts.Metrics != nil {
		metrics := s.metrics()
		out = append(out, route{get, "/metrics", inspect, func(w http.ResponseWriter, r *http.Request) *api.Error {
			metrics(w, r)
			return nil
		}})
	}
	return slices.Concat(out, one("/{plural}/{name}"), one("/meshes/{mesh}/{plural}/{name}"))
}

// metrics serves the metrics.
func (s *Server) metrics() http.HandlerFunc {
	h := promhttp.HandlerFor(s.opts.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return func(w http.ResponseWriter, r *http.Request) {
		answer := &buffered{ResponseWriter: w} // so that a slow reader does not occupy a slot
		h.ServeHTTP(answer, r)
		answer.send()
	}
}

// buffered buffers an answer until it is complete.
type buffered struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

func (b *buffered) send() {
	b.ResponseWriter.WriteHeader(cmp.Or(b.status, http.StatusOK))
	_, _ = b.ResponseWriter.Write(b.body.Bytes()) // ignores a client that disconnected
}

// routes returns the handler of all paths. It distinguishes methods itself instead of in the
// patterns, so that the answer to a wrong method is JSON.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	paths := map[string]map[string]route{}
	for _, x := range s.table() {
		if paths[x.pattern] == nil {
			paths[x.pattern] = map[string]route{}
		}
		paths[x.pattern][x.method] = x
	}
	for pattern, methods := range paths {
		mux.Handle(pattern, s.byMethod(methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, e := s.identify(w, r); e != nil {
			httpjson.WriteError(w, e)
			return
		}
		httpjson.WriteError(w, api.NewNotFound("there is no path %q; see docs/api.md", r.URL.Path))
	})
	return mux
}

// byMethod serves the methods of one path. It authenticates and authorizes the sender before it
// reads the request.
func (s *Server) byMethod(methods map[string]route) http.Handler {
	var allowed []string
	for m := range methods {
		allowed = append(allowed, m)
		if m == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	answer := func(w http.ResponseWriter, r *http.Request) *api.Error {
		m := r.Method
		if m == http.MethodHead {
			m = http.MethodGet // net/http omits the body
		}
		x, ok := methods[m]
		if ok {
			s.audit.Routed(r, audited.Route{Method: x.method, Pattern: x.pattern, Kind: x.need.kind})
		}
		if !x.need.open {
			var e *api.Error
			if r, e = s.identify(w, r); e != nil {
				return e
			}
		}
		if !ok {
			w.Header().Set("Allow", allow)
			return api.NewError(http.StatusMethodNotAllowed, api.ProblemMethod, "Method not allowed",
				"%s is not allowed at %q; allowed: %s", r.Method, r.URL.Path, allow)
		}
		if e := s.authorize(r, x.need); e != nil {
			return e
		}
		if e := params.Check(x.method, x.pattern, r); e != nil {
			return e
		}
		if f := s.opts.Suspended; f != nil && f(x.pattern) != nil {
			return f(x.pattern)
		}
		return x.handle(w, r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := answer(w, r); e != nil {
			httpjson.WriteError(w, e)
		}
	})
}

// shared limits the concurrent requests of one user or address to a handler.
func (s *Server) shared(x *sender.Shares, most int, h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) *api.Error {
		p := sender.Of(r)
		if s.opts.Access.Roles.Operator(&p) {
			return h(w, r)
		}
		release := x.Take(p.Owner(), most)
		if release == nil {
			w.Header().Set("Retry-After", "1")
			return api.NewError(http.StatusTooManyRequests, api.ProblemLimited, "Too many requests",
				"%s has %d such requests in progress, which is the limit; repeat the request when one has ended", p.Owner(), most)
		}
		defer release()
		return h(w, r)
	}
}
