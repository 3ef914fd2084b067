package match

import (
	"slices"
	"strconv"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

const (
	HttpFilters      = envoy.TypePrefix + "envoy.extensions.filters.http."
	RouterURL        = HttpFilters + "router.v3.Router"
	httpRBACURL      = HttpFilters + "rbac.v3.RBAC"
	httpRBACRouteURL = HttpFilters + "rbac.v3.RBACPerRoute"
	FilterConfigURL  = envoy.TypePrefix + "envoy.config.route.v3.FilterConfig"
)

// http evaluates the HTTP connection manager.
func (w *walk) http(m *hcmv3.HttpConnectionManager, at finding.Position) *Trace {
	w.logs(m.GetAccessLog(), at.Below("accessLog"))
	switch first := w.conn.First; {
	case first == TLSHello && !w.tls:
		return w.end(Broken, LevelNetworkFilter, "DPE", "the filter chain takes plain HTTP, and the client speaks TLS")
	case first == ServerFirst:
		return w.end(Broken, LevelNetworkFilter, "",
			"the filter chain takes HTTP, where the server says nothing before the client does")
	case first == PlainBytes:
		return w.end(Broken, LevelNetworkFilter, "DPE", "the filter chain expects HTTP, but the client uses another protocol")
	case w.req == nil:
		return w.end(Accepted, LevelNetworkFilter, "",
			"an HTTP connection manager takes the connection; what becomes of requests depends on them")
	}
	if t := w.version(m); t != nil {
		return t
	}
	s := newStream(w.req, &w.socket.seen, w.conn.Peer, w.tls)
	b := w.config.facts.Build
	s.latin1 = b != nil && b.Version.From(1, 39)
	if s.host == "" && w.conn.First == HTTP10 {
		s.host = m.GetHttpProtocolOptions().GetDefaultHostForHttp_10()
	}
	upgrade := s.upgradeOf(m.GetHttpProtocolOptions(), w.firstBytes())
	w.prepare(m, s)
	routes, position := w.routes(m, at)
	if routes == nil {
		return w.end(NoHost, LevelVirtualHost, "NR", "the routes do not exist")
	}
	before := len(w.trace.Steps)
	match := routes.find(s, &w.trace.Steps)
	var host *routev3.VirtualHost
	var route *routev3.Route
	if match.Host != NoIndex {
		host = routes.Message.GetVirtualHosts()[match.Host]
		p := position.Below("virtualHosts", strconv.Itoa(match.Host))
		w.trace.Steps[before].Place = &p
		if match.Route != NoIndex {
			route = host.GetRoutes()[match.Route]
			q := p.Below("routes", strconv.Itoa(match.Route))
			w.trace.Steps[len(w.trace.Steps)-1].Place, w.trace.Route = &q, &q
		}
	}
	o := overrides{route, host, routes.Message}
	filters, filtersAt, t := w.upgrade(m, at, o, upgrade)
	if t != nil {
		return t
	}
	if t := w.httpFilters(filters, filtersAt, s, o); t != nil {
		return t
	}
	w.trace.Status, w.trace.Location = match.Status, match.Location
	t = w.follow(match)
	if match.Outcome == Forwarded {
		w.pass(match, s, o)
		w.limits(m, o, upgrade)
	}
	return t
}

// pass records the requests that the clusters receive.
func (w *walk) pass(m RouteMatch, s *stream, o overrides) {
	for i := range w.trace.Targets {
		w.trace.Targets[i].Request = w.upstream(s, o, m.Clusters[i].entry, w.config.cluster(m.Clusters[i].Name))
	}
	if len(w.trace.Targets) > 0 {
		w.mirrors(o, w.trace.Targets[0].Request)
	}
}

// tellCertificate sets the header in which the connection manager describes the client's
// certificate. Hashes in it are unknown.
func (s *stream) tellCertificate(m *hcmv3.HttpConnectionManager) {
	how := m.GetForwardClientCertDetails()
	if how == hcmv3.HttpConnectionManager_ALWAYS_FORWARD_ONLY {
		return
	}
	shown := s.tls && s.peer != nil
	if shown && how == hcmv3.HttpConnectionManager_FORWARD_ONLY {
		return
	}
	s.cleared = true
	if !shown || how == hcmv3.HttpConnectionManager_SANITIZE {
		return
	}
	own := "Hash="
	if d := m.GetSetCurrentClientCertDetails(); d.GetUri() {
		for _, u := range s.peer.URIs {
			own += ";URI=" + u
		}
	}
	if before := s.headers[certificateHeader]; before != "" && how == hcmv3.HttpConnectionManager_APPEND_FORWARD {
		own = before + "," + own
	}
	s.certificate = own
}

// prepare changes the request as the connection manager does before routing.
func (w *walk) prepare(m *hcmv3.HttpConnectionManager, s *stream) {
	s.tellCertificate(m)
	if i := portStart(s.host); i >= 0 {
		port, _ := strconv.Atoi(s.host[i+1:])
		if m.GetStripAnyHostPort() || m.GetStripMatchingHostPort() && port == int(w.socket.seen.Dst.Port()) {
			s.host = s.host[:i]
		}
	}
	if m.GetStripTrailingHostDot() {
		s.host = strings.TrimSuffix(s.host, ".")
	}
	if m.GetNormalizePath().GetValue() {
		s.path = normalizePath(s.path)
	}
	if m.GetMergeSlashes() {
		p := withoutQuery(s.path)
		rest := s.path[len(p):]
		for strings.Contains(p, "//") {
			p = strings.ReplaceAll(p, "//", "/")
		}
		s.path = p + rest
	}
}

// routes returns the routes and their location, which is a separate resource with RDS.
func (w *walk) routes(m *hcmv3.HttpConnectionManager, at finding.Position) (*Routes, finding.Position) {
	if rds := m.GetRds(); rds != nil {
		name := rds.GetRouteConfigName()
		return w.config.routesOf(name), finding.Position{Type: envoy.KindRoute.URL(), Resource: name}
	}
	if inline := m.GetRouteConfig(); inline != nil {
		return NewRoutes(inline), at.Below("routeConfig")
	}
	return nil, at
}

// overrides holds the per-route filter configs of a request, the most specific first.
type overrides struct {
	route  *routev3.Route
	host   *routev3.VirtualHost
	routes *routev3.RouteConfiguration
}

func (o overrides) find(name string) *anypb.Any {
	for _, m := range []map[string]*anypb.Any{
		o.route.GetTypedPerFilterConfig(), o.host.GetTypedPerFilterConfig(), o.routes.GetTypedPerFilterConfig(),
	} {
		if a, ok := m[name]; ok {
			return a
		}
	}
	return nil
}

// httpFilters evaluates the HTTP filters in order. It returns the end of the trace, or nil.
func (w *walk) httpFilters(filters []*hcmv3.HttpFilter, at finding.Position, s *stream, o overrides) *Trace {
	for i, f := range filters {
		config := f.GetTypedConfig()
		position := at.Below(strconv.Itoa(i))
		step := Step{Level: LevelHTTPFilter, Input: clip.Value(f.GetName()), Choice: ShortURL(config.GetTypeUrl()),
			Place: &position}
		special := o.find(f.GetName())
		config, skipped := unwrap(config, s.seen)
		if slices.ContainsFunc(o.route.GetRoute().GetWeightedClusters().GetClusters(),
			func(c *routev3.WeightedCluster_ClusterWeight) bool {
				return c.GetTypedPerFilterConfig()[f.GetName()] != nil
			}) {
			step.note("some of the route's clusters override its config")
		}
		disabled := f.GetDisabled() && special == nil
		if special.GetTypeUrl() == FilterConfigURL {
			var c routev3.FilterConfig
			if special.UnmarshalTo(&c) == nil {
				disabled, special = c.GetDisabled(), c.GetConfig()
			}
		}
		switch {
		case disabled:
			step.Choice = "disabled"
			w.step(step)
		case skipped:
			step.note("its matcher skips this request")
			w.step(step)
		case config.GetTypeUrl() == RouterURL:
			w.step(step)
			return nil
		case config.GetTypeUrl() == httpRBACURL:
			if t := w.httpRBAC(&step, config, special, s); t != nil {
				return t
			}
		case config.GetTypeUrl() == faultURL:
			if t := w.fault(&step, config, special, s); t != nil {
				return t
			}
		case config.GetTypeUrl() == httpLimitURL:
			w.httpLimit(&step, config, special)
		default:
			step.note("not evaluated here: it may answer the request itself")
			w.step(step)
		}
	}
	return nil
}

// unwrap returns the config in an ExtensionWithMatcher, and whether its matcher skips the filter.
func unwrap(config *anypb.Any, s *Seen) (inner *anypb.Any, skipped bool) {
	m := &matchingv3.ExtensionWithMatcher{}
	if config.UnmarshalTo(m) != nil {
		return config, false
	}
	return m.GetExtensionConfig().GetTypedConfig(),
		compileMatcher(m.GetXdsMatcher(), 0).evaluate(s, nil).MessageIs(&skipv3.SkipFilter{})
}

// httpRBAC evaluates an RBAC filter. The route's config replaces that of the filter.
func (w *walk) httpRBAC(step *Step, config, special *anypb.Any, s *stream) *Trace {
	m := &httprbacv3.RBAC{}
	err := config.UnmarshalTo(m)
	if special.GetTypeUrl() == httpRBACRouteURL {
		var own httprbacv3.RBACPerRoute
		if err = special.UnmarshalTo(&own); err == nil {
			m = own.GetRbac()
			step.note("the route overrides its rules")
		}
	}
	if err != nil {
		step.note("it cannot be decoded")
		w.step(*step)
		return nil
	}
	return w.rbac(step, decideRBAC(m.GetRules(), m.GetMatcher(), s, true),
		evaluateShadow(m.GetShadowRules(), m.GetShadowMatcher(), s, true))
}

// evaluateShadow returns the decision of shadow rules, or "" if there are none.
func evaluateShadow(rules *rbacv3.RBAC, m *xdsmatcherv3.Matcher, s *stream, http bool) string {
	if rules == nil && m == nil {
		return ""
	}
	d := decideRBAC(rules, m, s, http)
	return d.text()
}

// follow continues with the action of the route.
func (w *walk) follow(m RouteMatch) *Trace {
	switch m.Outcome {
	case NoHost:
		return w.end(NoHost, LevelVirtualHost, "NR", "no virtual host has the domain %s", clip.Value(w.req.Host))
	case NoRoute:
		return w.end(NoRoute, LevelRoute, "NR", "no route of the virtual host fits")
	case Answered:
		if m.Location != "" {
			return w.end(Answered, LevelRoute, "", "Envoy answers with %d and Location %s", m.Status, clip.Value(m.Location))
		}
		if m.Status != 0 {
			return w.end(Answered, LevelRoute, "", "Envoy answers with %d", m.Status)
		}
		return w.end(Answered, LevelRoute, "", "a filter answers the request")
	}
	return w.forward(m.Clusters, m.Total)
}
