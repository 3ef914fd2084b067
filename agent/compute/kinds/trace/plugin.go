// Package trace implements MeshTrace: which requests are traced, and the collector of the spans.
//
// The HTTP connection managers of inbounds and outbounds get a tracer, and the proxy gets one
// cluster for the collector. Envoy supports one tracer for each connection manager, so a policy has
// one backend, or none to disable tracing. The certificate of a collector with https is not
// verified, because MeshTrace has no field for a certificate authority.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the policy kind of the plugin.
const Kind = "MeshTrace"

// exportTimeout is the timeout of a request to a collector over HTTP.
const exportTimeout = 10 * time.Second

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshtraces", "mtr", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			Default: true,
			NewConf: func() resource.Conf { return new(Conf) },
			Check:   checkPolicy,
		})},
		Legacy: legacy,
		Refers: []resource.Descriptor{toolkit.OTelBackends()},
		Apply:  apply,
		Reads:  policy.ReadsTags,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	rules := c.Rules.Kind(Kind)
	if rules == nil || rules.Proxy == nil {
		return
	}
	// Patches match the cluster by its origin.
	name := serviceName(c)
	Trace(c, d, toolkit.Conf[Conf](rules.Proxy), Names{
		Origin: "mesh-trace", Service: func(*draft.Listener) string { return name },
		Attributes: toolkit.WorkloadOf(c).Attributes(),
	}, func(format string, args ...any) {
		toolkit.WarnOrigins(c, rules.Proxy, format, args...)
	})
}

// Names holds the names by which the kinds of policies differ.
type Names struct {
	Cluster    string                       // of the collector; if empty, the name that MeshTrace uses
	Origin     string                       // of the cluster
	Service    func(*draft.Listener) string // the service in the spans of a listener
	Attributes [][2]string                  // tags of all spans, which tags of the conf override
}

// InboundService returns the service of an inbound, and the service of the proxy for an outbound.
func InboundService(c *policy.Context) func(*draft.Listener) string {
	name, inbounds := serviceName(c), c.Dataplane().Networking.Inbound
	return func(l *draft.Listener) string {
		if l.Kind == draft.Inbound && l.Inbound < len(inbounds) {
			return cmp.Or(inbounds[l.Inbound].Tags[resource.TagService], name)
		}
		return name
	}
}

// Trace enables tracing for a proxy according to a valid conf. It does nothing for nil. warn
// reports errors.
func Trace(c *policy.Context, d *draft.Draft, conf *Conf, names Names, warn func(format string, args ...any)) {
	if conf == nil || len(toolkit.Or(conf.Backends, nil)) == 0 {
		return
	}
	t := newTracer(conf, names)
	t.cluster = cmp.Or(names.Cluster, t.cluster)
	if reason := t.resolve(c, warn); reason != "" {
		warn("tracing is disabled: %s", reason)
		return
	}
	if err := t.applyAll(d); err != nil {
		warn("tracing is disabled: the tracer cannot be encoded: %v", err)
		return
	}
	if name := t.cluster; c.Last && c.Host.Claim(draft.TypeCluster, name) {
		cluster, err := t.collector(c.Dataplane().Networking.Address, names.Origin)
		if err != nil {
			warn("spans are dropped: cluster %s cannot be encoded: %v", name, err)
			return
		}
		d.Clusters = append(d.Clusters, cluster)
	}
}

// applyAll sets the tracer of every connection manager of inbounds and outbounds.
func (t *tracer) applyAll(d *draft.Draft) error {
	for _, l := range d.Listeners {
		if l.Kind != draft.Inbound && l.Kind != draft.Outbound {
			continue
		}
		var tracing *hcmv3.HttpConnectionManager_Tracing
		for _, ch := range l.Chains {
			if ch.HTTP == nil {
				continue
			}
			if tracing == nil {
				var err error
				if tracing, err = t.tracing(l); err != nil {
					return err
				}
			}
			ch.HTTP.Message.Tracing = tracing
		}
	}
	return nil
}

// serviceName returns the name of the proxy in spans: the alphabetically first of its services.
func serviceName(c *policy.Context) string {
	if names := c.View.ProxyTags(c.Dataplane())[resource.TagService]; len(names) > 0 && names[0] != "" {
		return names[0]
	}
	return "unknown"
}

// collector returns the cluster of the backend.
func (t *tracer) collector(proxyAddress, origin string) (*draft.Cluster, error) {
	c := toolkit.HostCluster(t.cluster, origin, t.at.Collector, proxyAddress)
	if t.backend.Type == typeOpenTelemetry && !t.otlp.HTTP {
		c.HTTP = draft.HTTP2Options
	}
	if t.at.tls {
		ctx := &tlsv3.UpstreamTlsContext{AllowRenegotiation: true}
		if c.Message.GetType() == clusterv3.Cluster_STRICT_DNS {
			ctx.Sni = t.at.Host // a server name is never an address (RFC 6066, section 3)
		}
		a, err := draft.Extension{Name: draft.NameTLS, Message: ctx}.Pack()
		if err != nil {
			return nil, err
		}
		c.Message.TransportSocket = &corev3.TransportSocket{Name: draft.NameTLS,
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: a}}
	}
	return c, nil
}

// tracer creates the tracing config of connection managers.
type tracer struct {
	names   Names
	backend *Backend
	at      endpoint
	otlp    toolkit.OTLP // for OpenTelemetry
	cluster string       // name of the collector's cluster
	conf    *Conf
	shared  map[string]*hcmv3.HttpConnectionManager_Tracing // by service
}

// newTracer returns a tracer for a valid conf with a backend.
func newTracer(conf *Conf, names Names) *tracer {
	t := &tracer{names: names, backend: &(*conf.Backends)[0], conf: conf,
		shared: map[string]*hcmv3.HttpConnectionManager_Tracing{}}
	switch t.backend.Type {
	case typeZipkin:
		t.cluster = "meshtrace:zipkin"
		t.at, _ = parseURL(t.backend.Zipkin.URL)
	case typeDatadog:
		t.cluster = "meshtrace:datadog"
		t.at, _ = parseURL(t.backend.Datadog.URL)
	default:
		t.cluster = "meshtrace:opentelemetry"
	}
	return t
}

// resolve resolves the collector of an OpenTelemetry backend, or returns the reason why there is
// none. warn reports settings of the collector that have no effect.
func (t *tracer) resolve(c *policy.Context, warn func(format string, args ...any)) (reason string) {
	if o := t.backend.OpenTelemetry; t.backend.Type == typeOpenTelemetry {
		t.otlp, reason = toolkit.ResolveOTel(c, o.Endpoint, o.BackendRef, warn)
		t.at.Collector, t.at.tls = t.otlp.Collector, t.otlp.TLS()
	}
	return reason
}

// splits reports whether service names of spans include direction and destination.
func (t *tracer) splits() bool {
	return t.backend.Type == typeDatadog && toolkit.Or(t.backend.Datadog.SplitService, false)
}

// tracing returns the tracing config of a listener. A sidecar and its workload are one hop of a
// trace, so the proxy creates no upstream span.
func (t *tracer) tracing(l *draft.Listener) (*hcmv3.HttpConnectionManager_Tracing, error) {
	service := t.serviceOf(l)
	if out := t.shared[service]; out != nil {
		return out, nil
	}
	provider, err := t.provider(service)
	if err != nil {
		return nil, err
	}
	out := &hcmv3.HttpConnectionManager_Tracing{
		CustomTags: t.tags(), Provider: provider, SpawnUpstreamSpan: wrapperspb.Bool(false),
	}
	if s := t.conf.Sampling; s != nil {
		out.OverallSampling, out.ClientSampling, out.RandomSampling = toolkit.Percent(s.Overall), toolkit.Percent(s.Client),
			toolkit.Percent(s.Random)
	}
	t.shared[service] = out
	return out, nil
}

func (t *tracer) tags() []*tracingv3.CustomTag {
	tags := toolkit.Or(t.conf.Tags, nil)
	out := make([]*tracingv3.CustomTag, len(tags), len(tags)+len(t.names.Attributes))
	for i, tag := range tags {
		if tag.Header == nil {
			out[i] = literal(tag.Name, *tag.Literal)
			continue
		}
		h := &tracingv3.CustomTag_Header{Name: tag.Header.Name, DefaultValue: toolkit.Or(tag.Header.Default, "")}
		out[i] = &tracingv3.CustomTag{Tag: tag.Name, Type: &tracingv3.CustomTag_RequestHeader{RequestHeader: h}}
	}
	for _, a := range t.names.Attributes {
		if !slices.ContainsFunc(tags, func(tag Tag) bool { return tag.Name == a[0] }) {
			out = append(out, literal(a[0], a[1]))
		}
	}
	return out
}

func literal(name, value string) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name,
		Type: &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: value}}}
}

func (t *tracer) provider(service string) (*tracev3.Tracing_Http, error) {
	var e draft.Extension
	switch t.backend.Type {
	case typeZipkin:
		e = draft.Extension{Name: "envoy.tracers.zipkin", Message: t.zipkin()}
	case typeDatadog:
		e = draft.Extension{Name: "envoy.tracers.datadog", Message: &tracev3.DatadogConfig{
			CollectorCluster: t.cluster, ServiceName: service,
		}}
	default:
		e = draft.Extension{Name: "envoy.tracers.opentelemetry", Message: t.openTelemetry(service)}
	}
	a, err := e.Pack()
	if err != nil {
		return nil, err
	}
	return &tracev3.Tracing_Http{Name: e.Name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: a}}, nil
}

func (t *tracer) openTelemetry(service string) *tracev3.OpenTelemetryConfig {
	out := &tracev3.OpenTelemetryConfig{ServiceName: service}
	if t.otlp.HTTP {
		out.HttpService = &corev3.HttpService{HttpUri: &corev3.HttpUri{
			Uri: t.otlp.URL("traces"), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: t.cluster},
			Timeout: durationpb.New(exportTimeout),
		}}
		return out
	}
	out.GrpcService = &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: t.cluster},
	}}
	return out
}

func (t *tracer) zipkin() *tracev3.ZipkinConfig {
	z := t.backend.Zipkin
	out := &tracev3.ZipkinConfig{
		CollectorCluster: t.cluster, CollectorEndpoint: t.at.path, CollectorHostname: t.at.authority,
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON,
		TraceId_128Bit:           toolkit.Or(z.TraceID128Bit, false),
		SharedSpanContext:        wrapperspb.Bool(toolkit.Or(z.SharedSpanContext, true)),
	}
	if toolkit.Or(z.APIVersion, "") == "httpProto" {
		out.CollectorEndpointVersion = tracev3.ZipkinConfig_HTTP_PROTO
	}
	return out
}

// serviceOf returns the service name in the spans of a listener.
func (t *tracer) serviceOf(l *draft.Listener) string {
	service := t.names.Service(l)
	switch {
	case !t.splits():
		return service
	case l.Kind == draft.Inbound:
		return service + "_INBOUND"
	}
	return service + "_OUTBOUND_" + l.Service.Name
}

// endpoint is the parsed URL of a collector.
type endpoint struct {
	toolkit.Collector
	explicitPort bool // the URL includes a port
	tls          bool
	authority    string // host and port as in the URL
	path         string // including the query
}

// parseURL parses the URL of a collector.
func parseURL(s string) (endpoint, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		var reason *url.Error
		if errors.As(err, &reason) {
			err = reason.Err // omits the URL, which may contain credentials
		}
		return endpoint{}, fmt.Errorf("not a URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("the scheme is %q: use http or https", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return endpoint{}, errors.New("the URL has no host")
	case u.User != nil:
		return endpoint{}, errors.New("the URL contains credentials, which Envoy cannot send: remove them")
	case u.Fragment != "":
		return endpoint{}, errors.New("the URL contains a fragment, which is never sent: remove it")
	}
	e := endpoint{Collector: toolkit.Collector{Host: u.Hostname(), Port: 80}, tls: u.Scheme == "https", authority: u.Host,
		path: u.EscapedPath()}
	if e.tls {
		e.Port = 443
	}
	if u.RawQuery != "" {
		e.path += "?" + u.RawQuery
	}
	if p := u.Port(); p != "" {
		e.explicitPort = true
		if e.Port, err = toolkit.ParsePort(p); err != nil {
			return endpoint{}, err
		}
	}
	return e, nil
}
