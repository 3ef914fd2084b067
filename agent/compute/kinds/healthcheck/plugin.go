// Package healthcheck implements MeshHealthCheck: proxies probe the endpoints of a service and
// exclude unhealthy ones.
//
// MeshHealthCheck policies affect the clusters of outbounds. The protocol of the service selects
// the probe: http for HTTP and HTTP/2, grpc for gRPC, tcp for other protocols. If http or grpc is
// disabled, tcp is used instead.
package healthcheck

import (
	"cmp"
	"encoding/hex"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	eventfilev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_check/event_sinks/file/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/compute/draft"
	"github.com/nearside-mesh/nearside/agent/compute/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/compute/match"
	"github.com/nearside-mesh/nearside/agent/compute/policy"
	"github.com/nearside-mesh/nearside/agent/model/mesh"
	"github.com/nearside-mesh/nearside/agent/model/resource"
)

// Kind is the policy kind of the plugin.
const Kind = "MeshHealthCheck"

// Plugin declares the kind with the legacy kinds that it replaces.
func Plugin(legacy ...policy.LegacyKind) policy.Plugin {
	return policy.Plugin{
		Kinds: []resource.Descriptor{resource.PolicyDescriptor(Kind, "meshhealthchecks", "mhc", resource.PolicyShape{
			Top:     toolkit.Proxies("MeshGateway"),
			To:      toolkit.Destinations(),
			NewConf: func() resource.Conf { return new(Conf) },
		})},
		Legacy: legacy,
		Shapes: []match.Level{match.LevelCluster},
		Apply:  apply,
		Reads:  policy.ReadsTags,
	}
}

func apply(c *policy.Context, d *draft.Draft) {
	k := c.Rules.Kind(Kind)
	if k == nil {
		return
	}
	var probes *Probes
	for cl := range toolkit.Clusters(d, draft.OutboundCluster) {
		r := k.Outbound(cl.Service)
		conf := toolkit.Conf[Conf](r)
		if conf == nil {
			continue
		}
		if probes == nil {
			probes = NewProbes(mesh.TagString(c.View.ProxyTags(c.Dataplane())))
		}
		probes.Put(cl, conf, mesh.Protocol(cl.Service.Protocol), func(format string, args ...any) {
			toolkit.WarnStrongest(c, r, format, args...)
		})
	}
}

// Probes creates and caches probes, which clusters share and must not modify.
type Probes struct {
	tags string
	memo map[probe]*corev3.HealthCheck
}

// NewProbes returns an empty cache of probes. Probes by HTTP send tags in a header unless tags is
// empty.
func NewProbes(tags string) *Probes { return &Probes{tags, map[probe]*corev3.HealthCheck{}} }

type probe struct {
	conf     *Conf
	protocol mesh.Protocol
}

// Put sets the cluster's probe from a conf for a protocol. warn reports settings that have no
// effect.
func (a *Probes) Put(cl *draft.Cluster, conf *Conf, p mesh.Protocol, warn func(format string, args ...any)) {
	if conf.HealthyPanicThreshold != nil || conf.FailTrafficOnPanic != nil {
		onPanic(cl, conf, warn)
	}
	key := probe{conf, p}
	check, ok := a.memo[key]
	if !ok {
		var err error
		if check, err = checkOf(conf, p, a.tags); err != nil {
			warn("eventLogPath: %v; endpoints are not probed", err)
		}
		a.memo[key] = check
	}
	if check != nil {
		cl.Message.HealthChecks = []*corev3.HealthCheck{check}
	}
}

// onPanic configures load balancing for when too few endpoints are healthy.
func onPanic(cl *draft.Cluster, conf *Conf, warn func(format string, args ...any)) {
	lb := toolkit.EditLoadBalancing(cl.Message)
	// A MeshCircuitBreaker takes precedence.
	if lb.HealthyPanicThreshold == nil {
		lb.HealthyPanicThreshold = toolkit.Percent(conf.HealthyPanicThreshold)
	}
	if f := conf.FailTrafficOnPanic; f != nil {
		if lb.LocalityConfigSpecifier == nil {
			lb.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{
				ZoneAwareLbConfig: &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{},
			}
		}
		if z := lb.GetZoneAwareLbConfig(); z != nil {
			z.FailTrafficOnPanic = *f
		} else if *f {
			warn("failTrafficOnPanic has no effect, because service %s has locality weights",
				cl.Service.Name)
		}
	}
}

// Kuma's defaults for unset fields.
const (
	defaultInterval           = time.Minute
	defaultTimeout            = 15 * time.Second
	defaultUnhealthyThreshold = 5
	defaultHealthyThreshold   = 1
)

const (
	nameEventFile = "envoy.health_check.event_sinks.file"
	tagsHeader    = "x-kuma-tags"
)

// checkOf returns the probe of a conf for services of a protocol, or nil if the conf has none. tags
// is sent in a header of HTTP probes.
func checkOf(c *Conf, p mesh.Protocol, tags string) (*corev3.HealthCheck, error) {
	out := &corev3.HealthCheck{}
	switch {
	case (p == mesh.ProtocolHTTP || p == mesh.ProtocolHTTP2) && c.HTTP != nil && !toolkit.Or(c.HTTP.Disabled, false):
		out.HealthChecker = c.HTTP.checker(p, tags)
	case p == mesh.ProtocolGRPC && c.GRPC != nil && !toolkit.Or(c.GRPC.Disabled, false):
		out.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{
			ServiceName: c.GRPC.ServiceName, Authority: c.GRPC.Authority,
		}}
	case c.TCP != nil && !toolkit.Or(c.TCP.Disabled, false) && c.tcpServes(p):
		out.HealthChecker = c.TCP.checker()
	default:
		return nil, nil
	}
	out.Interval = cmp.Or(toolkit.Duration(c.Interval), durationpb.New(defaultInterval))
	out.Timeout = cmp.Or(toolkit.Duration(c.Timeout), durationpb.New(defaultTimeout))
	out.UnhealthyThreshold = wrapperspb.UInt32(toolkit.Or(c.UnhealthyThreshold, defaultUnhealthyThreshold))
	out.HealthyThreshold = wrapperspb.UInt32(toolkit.Or(c.HealthyThreshold, defaultHealthyThreshold))
	out.InitialJitter, out.IntervalJitter = toolkit.Duration(c.InitialJitter), toolkit.Duration(c.IntervalJitter)
	out.IntervalJitterPercent = toolkit.Or(c.IntervalJitterPercent, 0)
	out.NoTrafficInterval = toolkit.Duration(c.NoTrafficInterval)
	out.AlwaysLogHealthCheckFailures = toolkit.Or(c.AlwaysLogHealthCheckFailures, false)
	if c.ReuseConnection != nil {
		out.ReuseConnection = wrapperspb.Bool(*c.ReuseConnection)
	}
	if c.EventLogPath != "" {
		sink, err := draft.Extension{Name: nameEventFile,
			Message: &eventfilev3.HealthCheckEventFileSink{EventLogPath: c.EventLogPath}}.Pack()
		if err != nil {
			return nil, err
		}
		out.EventLogger = []*corev3.TypedExtensionConfig{{Name: nameEventFile, TypedConfig: sink}}
	}
	return out, nil
}

// tcpServes reports whether the TCP probe applies to services of a protocol: to protocols without a
// specific probe, and to others if their probe is present but disabled.
func (c *Conf) tcpServes(p mesh.Protocol) bool {
	switch p {
	case mesh.ProtocolHTTP, mesh.ProtocolHTTP2:
		return c.HTTP != nil
	case mesh.ProtocolGRPC:
		return c.GRPC != nil
	}
	return true
}

func (t *TCP) checker() *corev3.HealthCheck_TcpHealthCheck_ {
	out := &corev3.HealthCheck_TcpHealthCheck{}
	if len(t.Send) > 0 {
		out.Send = payload(t.Send)
	}
	for _, b := range t.Receive {
		out.Receive = append(out.Receive, payload(b))
	}
	return &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: out}
}

// payload encodes bytes in hexadecimal, as Envoy expects.
func payload(b []byte) *corev3.HealthCheck_Payload {
	return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: hex.EncodeToString(b)}}
}

func (h *HTTP) checker(p mesh.Protocol, tags string) *corev3.HealthCheck_HttpHealthCheck_ {
	out := &corev3.HealthCheck_HttpHealthCheck{Path: toolkit.Or(h.Path, "/")}
	if p == mesh.ProtocolHTTP2 {
		out.CodecClientType = typev3.CodecClientType_HTTP2
	}
	if tags != "" {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: tagsHeader, Value: tags},
		})
	}
	if r := h.RequestHeadersToAdd; r != nil {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, r.Options(values)...)
	}
	for _, s := range h.ExpectedStatuses {
		out.ExpectedStatuses = append(out.ExpectedStatuses, &typev3.Int64Range{Start: int64(s), End: int64(s) + 1})
	}
	return &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: out}
}

// values splits the values of a header and escapes "%", because Envoy interprets them as format
// strings.
func values(s string) []string {
	list := strings.Split(strings.ReplaceAll(s, "%", "%%"), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}
