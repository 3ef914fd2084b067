package healthcheck

import (
	"encoding/hex"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	eventfilev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_check/event_sinks/file/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/mesh"
	"github.com/nearside-mesh/nearside/agent/resource"
)

// What a conf leaves open, as Kuma has it.
const (
	defaultInterval           = time.Minute
	defaultTimeout            = 15 * time.Second
	defaultUnhealthyThreshold = 5
	defaultHealthyThreshold   = 1
	defaultPath               = "/"
)

const (
	nameEventFile = "envoy.health_check.event_sinks.file"
	tagsHeader    = "x-kuma-tags"
)

// checkOf makes the probe of a cluster for services of a protocol: nil when the conf has none for them. tags is what
// the proxy says of itself in the header of requests.
func checkOf(c *Conf, p mesh.Protocol, tags string) (*corev3.HealthCheck, error) {
	out := &corev3.HealthCheck{}
	switch {
	case (p == mesh.ProtocolHTTP || p == mesh.ProtocolHTTP2) && c.HTTP != nil && !on(c.HTTP.Disabled):
		out.HealthChecker = c.HTTP.checker(p, tags)
	case p == mesh.ProtocolGRPC && c.GRPC != nil && !on(c.GRPC.Disabled):
		out.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{
			ServiceName: c.GRPC.ServiceName, Authority: c.GRPC.Authority,
		}}
	case c.TCP != nil && !on(c.TCP.Disabled) && c.tcpServes(p):
		out.HealthChecker = c.TCP.checker()
	default:
		return nil, nil
	}
	out.Interval, out.Timeout = orDefault(c.Interval, defaultInterval), orDefault(c.Timeout, defaultTimeout)
	out.UnhealthyThreshold = count(c.UnhealthyThreshold, defaultUnhealthyThreshold)
	out.HealthyThreshold = count(c.HealthyThreshold, defaultHealthyThreshold)
	out.InitialJitter, out.IntervalJitter = span(c.InitialJitter), span(c.IntervalJitter)
	if c.IntervalJitterPercent != nil {
		out.IntervalJitterPercent = *c.IntervalJitterPercent
	}
	out.NoTrafficInterval = span(c.NoTrafficInterval)
	out.AlwaysLogHealthCheckFailures = on(c.AlwaysLogHealthCheckFailures)
	if c.ReuseConnection != nil {
		out.ReuseConnection = wrapperspb.Bool(*c.ReuseConnection)
	}
	if c.EventLogPath != "" {
		sink, err := draft.Extension{Name: nameEventFile, Message: &eventfilev3.HealthCheckEventFileSink{EventLogPath: c.EventLogPath}}.Pack()
		if err != nil {
			return nil, err
		}
		out.EventLogger = []*corev3.TypedExtensionConfig{{Name: nameEventFile, TypedConfig: sink}}
	}
	return out, nil
}

// tcpServes says whether a TCP probe is for services of a protocol: those whose own probe is disabled, and all that
// have none of their own.
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

// payload is bytes in hexadecimal, as Envoy wants them.
func payload(b []byte) *corev3.HealthCheck_Payload {
	return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{Text: hex.EncodeToString(b)}}
}

func (h *HTTP) checker(p mesh.Protocol, tags string) *corev3.HealthCheck_HttpHealthCheck_ {
	out := &corev3.HealthCheck_HttpHealthCheck{Path: defaultPath}
	if h.Path != nil {
		out.Path = *h.Path
	}
	if p == mesh.ProtocolHTTP2 {
		out.CodecClientType = typev3.CodecClientType_HTTP2
	}
	if tags != "" {
		out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: tagsHeader, Value: tags},
		})
	}
	if r := h.RequestHeadersToAdd; r != nil {
		for _, x := range r.Add {
			out.RequestHeadersToAdd = x.append(out.RequestHeadersToAdd, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
		}
		for _, x := range r.Set {
			out.RequestHeadersToAdd = x.append(out.RequestHeadersToAdd, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
		}
	}
	for _, s := range h.ExpectedStatuses {
		out.ExpectedStatuses = append(out.ExpectedStatuses, &typev3.Int64Range{Start: int64(s), End: int64(s) + 1})
	}
	return &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: out}
}

// append adds the values of a header, the first one in the given way and the others behind it.
func (h *Header) append(list []*corev3.HeaderValueOption, how corev3.HeaderValueOption_HeaderAppendAction) []*corev3.HeaderValueOption {
	for value := range strings.SplitSeq(h.Value, ",") {
		list = append(list, &corev3.HeaderValueOption{
			// Envoy reads values as formats; % stands for itself when doubled.
			Header:       &corev3.HeaderValue{Key: h.Name, Value: strings.ReplaceAll(strings.TrimSpace(value), "%", "%%")},
			AppendAction: how,
		})
		how = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	return list
}

func on(b *bool) bool { return b != nil && *b }

func span(d *resource.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(d.Duration)
}

func orDefault(d *resource.Duration, otherwise time.Duration) *durationpb.Duration {
	if d == nil {
		return durationpb.New(otherwise)
	}
	return durationpb.New(d.Duration)
}

func count(n *uint32, otherwise uint32) *wrapperspb.UInt32Value {
	if n == nil {
		return wrapperspb.UInt32(otherwise)
	}
	return wrapperspb.UInt32(*n)
}
