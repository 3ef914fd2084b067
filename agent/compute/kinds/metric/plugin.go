// Package metric implements MeshMetric: the metrics of a proxy for Prometheus.
//
// No process besides the proxy collects, filters, or pushes metrics, so only metrics that Envoy
// serves are available. A Prometheus backend is a listener that forwards one path to the statistics
// of Envoy's admin interface, and nothing else. The admin interface is at networking.admin.port of
// the Dataplane, for an Envoy with a custom bootstrap, otherwise at the socket in the agent's
// bootstrap.
//
// Profiles and include become a filter for Envoy's statistic names, which serves all selected
// metrics and possibly more, because these names include the names of clusters and listeners, which
// are labels in Prometheus. The following fields have no effect, and the plugin warns about them:
// - applications: no process merges their metrics into those of the proxy.
// - OpenTelemetry backends: Envoy supports metric sinks only in its bootstrap.
// - exclude, and include by regular expression: Envoy's filter only includes, by other names.
// - tls.mode ProvidedTLS: the agent does not know the certificate and key. Such a backend is not
// served, because plain text would be worse.
// - clientId only names the listener; Prometheus does not discover proxies through a service.
package metric

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

const kind = "MeshMetric"

// Plugin declares the kind and its effect.
func Plugin() policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(kind, "meshmetrics", "mm", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Apply: apply,
	}
}

const (
	adminCluster   = "nearside:metrics:admin"
	listenerPrefix = "nearside:metrics:prometheus:"
	origin         = "prometheus" // for matching by patches
	statsPath      = "/stats/prometheus"
)

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(kind)
	if !c.Last || rules == nil || rules.Proxy == nil {
		return
	}
	conf := toolkit.Conf[Conf](rules.Proxy)
	if conf == nil || len(toolkit.Or(conf.Backends, nil)) == 0 {
		return
	}
	a := applier{c: c, rule: rules.Proxy, conf: conf}
	a.notes()
	for i := range *conf.Backends {
		if p := (*conf.Backends)[i].Prometheus; (*conf.Backends)[i].Type == typePrometheus && p != nil {
			a.prometheus(d, fmt.Sprintf("backends[%d]", i), p)
		}
	}
}

type applier struct {
	c    *policy.Context
	rule *policy.Rule
	conf *Conf
}

// warn reports a problem to the owner of a list in the merged conf: the strongest policy that sets
// it, because lists are replaced.
func (a *applier) warn(has func(*Conf) bool, format string, args ...any) {
	for _, o := range slices.Backward(a.rule.Origins) {
		if p, ok := o.Policy.Spec.(*resource.Policy); ok {
			if conf, ok := p.Default.(*Conf); ok && has(conf) {
				a.c.Host.Warn(o.Policy.Key, format, args...)
				return
			}
		}
	}
}

func hasBackends(c *Conf) bool     { return c.Backends != nil }
func hasApplications(c *Conf) bool { return c.Applications != nil }
func hasProfiles(c *Conf) bool     { return c.Sidecar != nil && c.Sidecar.Profiles != nil }
func hasExclude(c *Conf) bool      { return hasProfiles(c) && c.Sidecar.Profiles.Exclude != nil }
func hasInclude(c *Conf) bool      { return hasProfiles(c) && c.Sidecar.Profiles.Include != nil }

// notes warns about fields that have no effect.
func (a *applier) notes() {
	if len(toolkit.Or(a.conf.Applications, nil)) > 0 {
		a.warn(hasApplications, "applications have no effect, because Envoy cannot scrape them; let Prometheus scrape them")
	}
	for i, b := range *a.conf.Backends {
		if b.Type == typeOpenTelemetry {
			a.warn(hasBackends, "backends[%d] has no effect, because Envoy supports OpenTelemetry collectors only in its "+
				"bootstrap; let the collector scrape a Prometheus backend", i)
		}
	}
	if !hasProfiles(a.conf) {
		return
	}
	p := a.conf.Sidecar.Profiles
	if len(toolkit.Or(p.Exclude, nil)) > 0 {
		a.warn(hasExclude, "sidecar.profiles.exclude has no effect, because Envoy can only filter by inclusion")
	}
	if p.includesRegex() && p.broadest() != profileAll {
		a.warn(hasInclude, "sidecar.profiles.include serves all metrics, because Envoy cannot evaluate selectors of "+
			"type Regex; use Prefix, Exact, or Contains")
	}
}

// prometheus adds the listener of a backend, and the cluster of the admin interface once.
func (a *applier) prometheus(d *draft.Draft, field string, p *Prometheus) {
	switch p.mode() {
	case tlsProvided:
		a.warn(hasBackends, "%s is not served, because the agent has no certificate for tls.mode ProvidedTLS; "+
			"use mode Disabled", field)
		return
	case tlsMesh:
		a.warn(hasBackends, "%s is not served, because tls.mode ActiveMTLSBackend requires a mesh certificate, "+
			"which the agent does not provide for metrics; use mode Disabled", field)
		return
	}
	host, err := netip.ParseAddr(a.c.Dataplane().Networking.Address)
	if err != nil {
		a.warn(hasBackends, "%s is not served by %s, because its networking.address %q is not an IP address",
			field, a.c.Proxy().Key, a.c.Dataplane().Networking.Address)
		return
	}
	if by := portOwner(a.c.Dataplane(), host, p.port()); by != "" {
		a.warn(hasBackends, "%s is not served by %s, because its %s already uses port %d; use another port",
			field, a.c.Proxy().Key, by, p.port())
		return
	}
	if port := a.adminPort(); port != 0 && a.c.Host.Claim(draft.TypeCluster, adminCluster) {
		d.Clusters = append(d.Clusters, toolkit.StaticCluster(adminCluster, origin, toolkit.Address("127.0.0.1", port)))
	}
	if name := listenerPrefix + p.client(); a.c.Host.Claim(draft.TypeListener, name) {
		d.Listeners = append(d.Listeners, &draft.Listener{
			Kind: draft.OtherListener, Origin: origin, Port: p.port(), Chains: []*draft.Chain{{HTTP: a.http(name, p.path())}},
			Message: &listenerv3.Listener{
				Name: name, Address: toolkit.Address(host.String(), p.port()),
				TrafficDirection: corev3.TrafficDirection_INBOUND, EnableReusePort: wrapperspb.Bool(false),
			},
		})
	}
}

// http routes only the path of the statistics to the admin interface, because the admin interface
// can also stop the proxy.
func (a *applier) http(name, path string) *draft.HTTP {
	return &draft.HTTP{
		Filters: draft.PlainFilters,
		Message: &hcmv3.HttpConnectionManager{StatPrefix: toolkit.StatName(name)},
		Routes: &routev3.RouteConfiguration{
			Name: name, ValidateClusters: wrapperspb.Bool(false),
			VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{
					PathSpecifier: &routev3.RouteMatch_Path{Path: path},
					Headers:       []*routev3.HeaderMatcher{toolkit.Header(":method", toolkit.Exactly("GET"))},
				},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: a.admin()},
					PrefixRewrite:    statsPath + "?" + query(a.conf.Sidecar),
				}},
			}}}},
		},
	}
}

// query returns the query that selects the metrics. Envoy appends the query of the request,
// including the question mark, so the last parameter absorbs it. The first occurrence of a repeated
// parameter applies.
func query(s *Sidecar) string {
	var b strings.Builder
	if s == nil || !toolkit.Or(s.IncludeUnused, false) {
		b.WriteString("usedonly&")
	}
	if pattern := s.filter(); pattern != "" {
		b.WriteString("filter=" + url.QueryEscape(pattern) + "&")
	}
	return b.String() + "client="
}

// adminPort returns the loopback port of the proxy's admin interface, or 0 if the Dataplane does
// not set it.
func (a *applier) adminPort() uint32 {
	if admin := a.c.Dataplane().Networking.Admin; admin != nil {
		return admin.Port
	}
	return 0
}

// admin returns the name of the cluster for the proxy's admin interface.
func (a *applier) admin() string {
	if a.adminPort() != 0 {
		return adminCluster
	}
	return policy.AdminCluster
}

// portTaken returns the field of a dataplane that already uses an address and port; "" if none
// does.
func portOwner(dp *resource.Dataplane, host netip.Addr, port uint32) string {
	for i := range dp.Networking.Inbound {
		in := &dp.Networking.Inbound[i]
		if a, err := netip.ParseAddr(cmp.Or(in.Address, dp.Networking.Address)); err == nil && a == host && in.Port == port {
			return fmt.Sprintf("networking.inbound[%d]", i)
		}
	}
	for i := range dp.Networking.Outbound {
		out := &dp.Networking.Outbound[i]
		if a, err := netip.ParseAddr(out.Address); err == nil && a == host && out.Port == port {
			return fmt.Sprintf("networking.outbound[%d]", i)
		}
	}
	if t := dp.Networking.TransparentProxying; t != nil {
		switch port {
		case t.RedirectPortInbound:
			return "networking.transparentProxying.redirectPortInbound"
		case t.RedirectPortOutbound:
			return "networking.transparentProxying.redirectPortOutbound"
		}
	}
	return ""
}
