package check

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	templatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/base/clip"
	"github.com/nearside-mesh/nearside/agent/compute/envoy"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/syntax"
	"github.com/nearside-mesh/nearside/agent/model/finding"
)

// anyMap is the type of typed_per_filter_config.
type anyMap = map[string]*anypb.Any

// checkRouteConfiguration checks fields for all virtual hosts. It also checks the clusters of
// routes, because this message determines whether Envoy validates them.
func checkRouteConfiguration(s *subject, m *routev3.RouteConfiguration) {
	x := match.IndexHosts(m.GetVirtualHosts())
	for _, c := range x.Conflicts {
		at := finding.Item("virtualHosts", c.Second, "domains", index(c.SecondOfDomain))
		others := []string{finding.Item("virtualHosts", c.First)}
		if c.Domain == "*" {
			s.reportWith(others, 54, finding.Reject, at, "two virtual hosts match any domain: keep one *")
			continue
		}
		s.reportWith(others, 53, finding.Reject, at,
			"the domain %q is listed twice: Envoy ignores case, and a domain belongs to one virtual host", clip.Value(c.Domain))
	}
	names := map[string]int{}
	for i, h := range m.GetVirtualHosts() {
		if first, twice := names[h.GetName()]; twice && h.GetName() != "" {
			s.reportWith([]string{finding.Item("virtualHosts", first)}, 55, finding.Warning, finding.Item("virtualHosts", i,
				"name"), "the virtual host name %q is used twice: both hosts share their statistics", clip.Value(h.GetName()))
		} else {
			names[h.GetName()] = i
		}
	}
	// Envoy validates the clusters of inline routes by default, but not those of RDS routes.
	validates := s.resource.Type != envoy.KindRoute.URL()
	if v := m.GetValidateClusters(); v != nil {
		validates = v.GetValue()
	}
	plugins := map[string]bool{}
	for _, p := range m.GetClusterSpecifierPlugins() {
		plugins[p.GetExtension().GetName()] = true
	}
	limit := uint32(4096)
	if v := m.GetMaxDirectResponseBodySizeBytes(); v != nil {
		limit = v.GetValue()
	}
	for i, h := range m.GetVirtualHosts() {
		checkMirrors(s, h.GetRequestMirrorPolicies(), finding.Item("virtualHosts", i, "requestMirrorPolicies"), validates)
		for j, r := range h.GetRoutes() {
			at := finding.Item("virtualHosts", i, "routes", index(j))
			referToClusters(s, r, at, validates)
			if p := r.GetRoute().GetClusterSpecifierPlugin(); p != "" && !plugins[p] {
				s.report(206, finding.Reject, at+"/route/clusterSpecifierPlugin", "cluster_specifier_plugins has no %q",
					clip.Value(p))
			}
			body := r.GetDirectResponse().GetBody()
			if size := max(len(body.GetInlineString()), len(body.GetInlineBytes())); uint32(size) > limit {
				s.report(64, finding.Reject, at+"/directResponse/body",
					"the body has %d bytes, max_direct_response_body_size_bytes allows %d", size, limit)
			}
		}
	}
	checkMirrors(s, m.GetRequestMirrorPolicies(), "requestMirrorPolicies", validates)
	checkHeaderNames(s, m.GetRequestHeadersToRemove(), "requestHeadersToRemove")
	checkHeaderNames(s, m.GetResponseHeadersToRemove(), "responseHeadersToRemove")
}

// clusterRef records the cluster of a route.
func clusterRef(s *subject, name, at string, validates bool) {
	if validates {
		s.refer(envoy.KindCluster, name, at, 63, finding.Reject,
			"Envoy looks for it when it loads the routes (validate_clusters)")
		return
	}
	s.refer(envoy.KindCluster, name, at, 31, finding.Warning, "Envoy answers its requests with 503")
}

func checkMirrors(s *subject, list []*routev3.RouteAction_RequestMirrorPolicy, at string, validates bool) {
	for i, p := range list {
		if (p.GetCluster() == "") == (p.GetClusterHeader() == "") {
			s.report(62, finding.Reject, finding.Item(at, i), "give either cluster or cluster_header")
		}
		if p.GetCluster() == "" {
			continue
		}
		at := finding.Item(at, i, "cluster")
		if validates {
			clusterRef(s, p.GetCluster(), at, true)
		} else {
			s.refer(envoy.KindCluster, p.GetCluster(), at, 63, finding.Warning, "nothing is mirrored")
		}
	}
}

func referToClusters(s *subject, r *routev3.Route, at string, validates bool) {
	a := r.GetRoute()
	if a == nil {
		return
	}
	if c := a.GetCluster(); c != "" {
		clusterRef(s, c, at+"/route/cluster", validates)
	}
	for k, w := range a.GetWeightedClusters().GetClusters() {
		if w.GetName() != "" {
			clusterRef(s, w.GetName(), at+"/route/"+finding.Item("weightedClusters/clusters", k, "name"), validates)
		}
	}
	checkMirrors(s, a.GetRequestMirrorPolicies(), at+"/route/requestMirrorPolicies", validates)
}

// checkVirtualHost checks one virtual host.
func checkVirtualHost(s *subject, m *routev3.VirtualHost) {
	for i, d := range m.GetDomains() {
		if d != "*" &&
			(strings.Contains(strings.Trim(d, "*"), "*") || strings.HasPrefix(d, "*") && strings.HasSuffix(d, "*")) {
			s.report(56, finding.Warning, finding.Item("domains", i),
				"Envoy treats only the first or the last * of %q as a wildcard", clip.Value(d))
		}
	}
	if m.GetMatcher() != nil && len(m.GetRoutes()) > 0 {
		s.report(69, finding.Reject, "matcher", "a virtual host has routes or a matcher, not both")
	}
	checkHeaderNames(s, m.GetRequestHeadersToRemove(), "requestHeadersToRemove")
	checkHeaderNames(s, m.GetResponseHeadersToRemove(), "responseHeadersToRemove")
}

// checkRoute checks one route.
func checkRoute(s *subject, m *routev3.Route) {
	checkHeaderNames(s, m.GetRequestHeadersToRemove(), "requestHeadersToRemove")
	checkHeaderNames(s, m.GetResponseHeadersToRemove(), "responseHeadersToRemove")
	a := m.GetRoute()
	if a == nil {
		return
	}
	checkUpgrades(s, a)
	template := strings.HasSuffix(m.GetMatch().GetPathMatchPolicy().GetTypedConfig().GetTypeUrl(),
		"UriTemplateMatchConfig")
	if strings.HasSuffix(a.GetPathRewritePolicy().GetTypedConfig().GetTypeUrl(), "UriTemplateRewriteConfig") && !template {
		s.report(206, finding.Reject, "route/pathRewritePolicy",
			"a URI template can only rewrite a path that a URI template matches: set path_match_policy")
	}
	rewrites := 0
	for _, set := range []bool{a.GetPrefixRewrite() != "", a.GetRegexRewrite() != nil, a.GetPathRewritePolicy() != nil} {
		if set {
			rewrites++
		}
	}
	if rewrites > 1 {
		s.report(65, finding.Reject,
			"route", "prefix_rewrite, regex_rewrite, and path_rewrite_policy cannot be combined: keep one")
	}
}

// checkUpgrades checks the upgrades of a route.
func checkUpgrades(s *subject, a *routev3.RouteAction) {
	seen := map[string]int{}
	for i, u := range a.GetUpgradeConfigs() {
		kind := match.LowerASCII(u.GetUpgradeType())
		at := finding.Item("route/upgradeConfigs", i)
		if first, twice := seen[kind]; twice {
			s.reportWith([]string{finding.Item("route/upgradeConfigs", first)}, 44, finding.Reject, at,
				"the upgrade %q is configured twice", clip.Value(u.GetUpgradeType()))
		}
		seen[kind] = i
		if u.GetConnectConfig() != nil && kind != "connect" && kind != "connect-udp" {
			s.report(44, finding.Reject, at+"/connectConfig", "connect_config is for the upgrade CONNECT, but this is %q",
				clip.Value(u.GetUpgradeType()))
		}
	}
}

// specifiers lists the types of cluster specifiers.
var specifiers = typeNames("envoy.router.cluster_specifier_plugin")

// checkSpecifier checks a cluster specifier extension.
func checkSpecifier(s *subject, m *routev3.ClusterSpecifierPlugin) {
	url := m.GetExtension().GetTypedConfig().GetTypeUrl()
	if name := strings.TrimPrefix(url, envoy.TypePrefix); !m.GetIsOptional() && !slices.Contains(specifiers, name) &&
		(strings.HasPrefix(name, "envoy.") || strings.HasPrefix(name, "google.protobuf.")) {
		s.report(23, finding.Reject, "extension/typedConfig", "%s is not a cluster specifier: use one of %s",
			match.ShortURL(url), strings.Join(specifiers, ", "))
	}
}

// checkTemplateMatch checks a path template.
func checkTemplateMatch(s *subject, m *templatev3.UriTemplateMatchConfig) {
	if why := syntax.URITemplateFault(m.GetPathTemplate()); why != "" {
		s.report(206, finding.Reject, "pathTemplate", "%q is not a URI template: %s", clip.Value(m.GetPathTemplate()), why)
	}
}

// checkWeightedCluster checks the weights of a route.
func checkWeightedCluster(s *subject, m *routev3.WeightedCluster) {
	var total uint64
	for i, c := range m.GetClusters() {
		total += uint64(c.GetWeight().GetValue())
		if (c.GetName() == "") == (c.GetClusterHeader() == "") {
			s.report(62, finding.Reject, finding.Item("clusters", i), "give either name or cluster_header")
		}
		checkHeaderNames(s, c.GetRequestHeadersToRemove(), finding.Item("clusters", i, "requestHeadersToRemove"))
		checkHeaderNames(s, c.GetResponseHeadersToRemove(), finding.Item("clusters", i, "responseHeadersToRemove"))
	}
	switch {
	case total == 0:
		s.report(60, finding.Reject, "clusters", "the weights sum up to 0: at least one must be positive")
	case total > 1<<32-1:
		s.report(61, finding.Reject, "clusters", "the weights sum up to %d, but at most %d is allowed",
			total, uint64(1<<32-1))
	}
}

// retryWords lists the conditions of retry_on, for HTTP and for gRPC.
var retryWords = map[string]bool{
	"5xx": true, "gateway-error": true, "connect-failure": true, "envoy-ratelimited": true, "retriable-4xx": true,
	"refused-stream": true, "retriable-status-codes": true, "retriable-headers": true, "reset": true,
	"reset-before-request": true, "http3-post-connect-failure": true,
	"cancelled": true, "deadline-exceeded": true, "resource-exhausted": true, "unavailable": true, "internal": true,
}

// checkRetryPolicy checks a retry policy.
func checkRetryPolicy(s *subject, m *routev3.RetryPolicy) {
	if b := m.GetRetryBackOff(); b.GetMaxInterval() != nil && b.GetBaseInterval() != nil &&
		b.GetMaxInterval().AsDuration() < b.GetBaseInterval().AsDuration() {
		s.report(66, finding.Reject, "retryBackOff/maxInterval", "max_interval %v is below base_interval %v",
			b.GetMaxInterval().AsDuration(), b.GetBaseInterval().AsDuration())
	}
	for word := range strings.SplitSeq(m.GetRetryOn(), ",") {
		if word = strings.TrimSpace(word); word != "" && !retryWords[word] {
			s.report(67, finding.Warning, "retryOn", "Envoy ignores the unknown condition %q", clip.Value(word))
		}
	}
}
