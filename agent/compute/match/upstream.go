package match

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// Upstream is a request as a cluster receives it, without headers that Envoy generates, such as
// x-request-id.
type Upstream struct {
	Method  string   `json:"method"`
	Host    string   `json:"host"`
	Path    string   `json:"path"`
	Headers []Header `json:"headers,omitempty"`
	// Note names parts that are not evaluated, or is "".
	Note string `json:"note,omitempty"`
}

// Mirror is a cluster that receives a copy of a request. Its response is discarded.
type Mirror struct {
	Cluster string            `json:"cluster"`
	Percent float64           `json:"percent"` // of the requests
	Place   *finding.Position `json:"place,omitempty"`
	Request *Upstream         `json:"request"`
}

// upstream returns the request that a cluster of a route receives. Like Envoy's router, it changes
// headers first, then host and path.
func (w *walk) upstream(s *stream, o overrides, entry *routev3.WeightedCluster_ClusterWeight,
	c *clusterv3.Cluster) *Upstream {
	u := &Upstream{Method: s.method, Host: s.host, Path: s.path}
	for _, h := range w.req.Headers {
		if v, ok := s.headers[LowerASCII(h.Name)]; ok && (LowerASCII(h.Name) != "connection" || v != "") {
			u.Headers = append(u.Headers, Header{LowerASCII(h.Name), h.Value})
		}
	}
	for _, e := range o.mutations(entry) {
		u.mutate(e.remove, e.add)
	}
	u.rewriteHost(o.route.GetRoute(), entry, c)
	u.rewritePath(o.route)
	return u
}

// mutation holds the header changes of one part of a config.
type mutation struct {
	remove []string
	add    []*corev3.HeaderValueOption
}

// mutations returns the header changes in the order in which Envoy applies them.
func (o overrides) mutations(entry *routev3.WeightedCluster_ClusterWeight) []mutation {
	out := []mutation{
		{entry.GetRequestHeadersToRemove(), entry.GetRequestHeadersToAdd()},
		{o.route.GetRequestHeadersToRemove(), o.route.GetRequestHeadersToAdd()},
		{o.host.GetRequestHeadersToRemove(), o.host.GetRequestHeadersToAdd()},
		{o.routes.GetRequestHeadersToRemove(), o.routes.GetRequestHeadersToAdd()},
	}
	if o.routes.GetMostSpecificHeaderMutationsWins() {
		slices.Reverse(out)
	}
	return out
}

func (u *Upstream) mutate(remove []string, add []*corev3.HeaderValueOption) {
	for _, name := range remove {
		u.remove(LowerASCII(name))
	}
	for _, o := range add {
		name, value := LowerASCII(o.GetHeader().GetKey()), o.GetHeader().GetValue()
		if value == "" {
			value = string(o.GetHeader().GetRawValue())
		}
		if value == "" && !o.GetKeepEmptyValue() {
			continue
		}
		text := strings.ReplaceAll(value, "%%", "")
		if strings.Contains(text, "%") {
			u.note("the commands in header %s are not evaluated here", clip.Value(name))
		}
		value = strings.ReplaceAll(value, "%%", "%")
		action := o.GetAppendAction()
		//lint:ignore SA1019 Envoy still reads it
		if old := o.GetAppend(); old != nil && !old.GetValue() {
			action = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		}
		has := slices.ContainsFunc(u.Headers, func(h Header) bool { return h.Name == name })
		switch {
		case action == corev3.HeaderValueOption_ADD_IF_ABSENT && has,
			action == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS && !has:
			continue
		case action == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			action == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS:
			u.remove(name)
		}
		u.Headers = append(u.Headers, Header{name, value})
	}
}

func (u *Upstream) remove(name string) {
	u.Headers = slices.DeleteFunc(u.Headers, func(h Header) bool { return h.Name == name })
}

func (u *Upstream) header(name string) string {
	for _, h := range u.Headers {
		if h.Name == LowerASCII(name) {
			return h.Value
		}
	}
	return ""
}

func (u *Upstream) note(format string, args ...any) {
	s := Step{Note: u.Note}
	s.note(format, args...)
	u.Note = s.Note
}

// rewriteHost applies the route's host rewrite. If several endpoints have names, it uses the first
// one.
func (u *Upstream) rewriteHost(a *routev3.RouteAction, entry *routev3.WeightedCluster_ClusterWeight,
	c *clusterv3.Cluster) {
	host := entry.GetHostRewriteLiteral()
	switch h := a.GetHostRewriteSpecifier().(type) {
	case nil:
	case *routev3.RouteAction_HostRewriteLiteral:
		if host == "" {
			host = h.HostRewriteLiteral
		}
	case *routev3.RouteAction_HostRewriteHeader:
		host = u.header(h.HostRewriteHeader)
	case *routev3.RouteAction_HostRewritePathRegex:
		host = syntax.Rewrite(withoutQuery(u.Path), h.HostRewritePathRegex.GetPattern().GetRegex(),
			h.HostRewritePathRegex.GetSubstitution())
	case *routev3.RouteAction_AutoHostRewrite:
		if h.AutoHostRewrite.GetValue() {
			host = firstHostname(c)
		}
	default:
		u.note("the way in which the route makes the host is not evaluated here")
	}
	if host == "" {
		return
	}
	if a.GetAppendXForwardedHost() {
		u.Headers = append(u.Headers, Header{"x-forwarded-host", u.Host})
	}
	u.Host = host
}

// firstHostname returns the name of a cluster's first endpoint: its hostname, or else the name that
// is resolved.
func firstHostname(c *clusterv3.Cluster) string {
	looked := c.GetType() == clusterv3.Cluster_STRICT_DNS || c.GetType() == clusterv3.Cluster_LOGICAL_DNS
	for _, l := range c.GetLoadAssignment().GetEndpoints() {
		if len(l.GetLbEndpoints()) == 0 {
			continue
		}
		e := l.GetLbEndpoints()[0].GetEndpoint()
		if name := e.GetHostname(); name != "" || !looked {
			return name
		}
		return e.GetAddress().GetSocketAddress().GetAddress()
	}
	return ""
}

// rewritePath applies the route's path rewrite. The query stays.
func (u *Upstream) rewritePath(r *routev3.Route) {
	a := r.GetRoute()
	path := withoutQuery(u.Path)
	query := u.Path[len(path):]
	switch {
	case a.GetPrefixRewrite() != "":
		path = a.GetPrefixRewrite() + path[min(len(path), len(matchedPrefix(r.GetMatch(), path))):]
	case a.GetRegexRewrite() != nil:
		path = syntax.Rewrite(path, a.GetRegexRewrite().GetPattern().GetRegex(), a.GetRegexRewrite().GetSubstitution())
	case a.GetPathRewritePolicy() != nil:
		u.note("the path rewrite policy of the route is not evaluated here")
	}
	u.Path = path + query
}

// mirrors records the clusters that receive copies of the request: those of the route, or else of
// the virtual host, or else of all routes.
func (w *walk) mirrors(o overrides, u *Upstream) {
	list := o.route.GetRoute().GetRequestMirrorPolicies()
	if len(list) == 0 {
		list = o.host.GetRequestMirrorPolicies()
	}
	if len(list) == 0 {
		list = o.routes.GetRequestMirrorPolicies()
	}
	for _, p := range list {
		m := Mirror{Cluster: p.GetCluster(), Percent: 100}
		if m.Cluster == "" {
			m.Cluster = u.header(p.GetClusterHeader())
		}
		if f := p.GetRuntimeFraction(); f != nil {
			m.Percent = percentOf(f.GetDefaultValue())
		}
		if w.config.cluster(m.Cluster) != nil {
			m.Place = &finding.Position{Type: envoy.KindCluster.URL(), Resource: m.Cluster}
		}
		own := *u
		if !p.GetDisableShadowHostSuffixAppend() {
			own.Host = shadowHost(own.Host)
		}
		m.Request = &own
		w.trace.Mirrors = append(w.trace.Mirrors, m)
	}
}

// shadowHost returns the host that Envoy sets in copies of requests.
func shadowHost(host string) string {
	port := ""
	if i := portStart(host); i >= 0 {
		host, port = host[:i], host[i:]
	}
	return host + "-shadow" + port
}
