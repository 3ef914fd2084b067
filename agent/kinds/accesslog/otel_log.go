package accesslog

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	otlpv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/nearside-mesh/nearside/agent/draft"
	"github.com/nearside-mesh/nearside/agent/envoy/substitution"
	"github.com/nearside-mesh/nearside/agent/kinds/toolkit"
	"github.com/nearside-mesh/nearside/agent/policy"
	"github.com/nearside-mesh/nearside/agent/resource"
)

const (
	nameOTel = "envoy.access_loggers.open_telemetry"
	logName  = "MeshAccessLog"
	origin   = "mesh-access-log" // as patches match what the plugin adds
)

// record is what an entry of an OpenTelemetry logger looks like.
type record struct {
	cluster    string
	body       anyValue
	attributes []anyField
}

// readRecord reads a valid conf. Without a body the text of the default format is one.
func (o *OTel) readRecord(text []substitution.Segment) record {
	var none []resource.Fault
	v := resource.NewValidator("", &none)
	r := record{body: anyValue{text: text}}
	if o.Body != nil {
		r.body = readBody(v, o.Body.JSON)
	}
	for _, a := range o.Attributes {
		r.attributes = append(r.attributes, anyField{a.Key, anyValue{text: parse(v, a.Value)}})
	}
	return r
}

// template is all texts of a record, for what is asked of formats.
func (r *record) template() template {
	t := template{json: true}
	t.add(&r.body)
	for i := range r.attributes {
		t.add(&r.attributes[i].value)
	}
	return t
}

func (t *template) add(a *anyValue) {
	t.values = append(t.values, a.text)
	for i := range a.list {
		t.add(&a.list[i])
	}
	for i := range a.fields {
		t.add(&a.fields[i].value)
	}
}

// pack makes the config of Envoy's logger.
func (r *record) pack(v *values) (*anypb.Any, error) {
	return draft.Extension{Name: nameOTel, Message: &otelv3.OpenTelemetryAccessLogConfig{
		//lint:ignore SA1019 the newer fields are unknown to Envoys in use, and this one is read by all
		CommonConfig: &grpcv3.CommonGrpcAccessLogConfig{
			LogName: logName,
			GrpcService: &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: r.cluster},
			}},
			TransportApiVersion: corev3.ApiVersion_V3,
		},
		Body:       r.body.message(v),
		Attributes: messages(r.attributes, v),
	}}.Pack()
}

func (a *anyValue) message(v *values) *otlpv1.AnyValue {
	switch {
	case a.fields != nil:
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_KvlistValue{KvlistValue: messages(a.fields, v)}}
	case a.list != nil:
		out := &otlpv1.ArrayValue{}
		for i := range a.list {
			out.Values = append(out.Values, a.list[i].message(v))
		}
		return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_ArrayValue{ArrayValue: out}}
	}
	return &otlpv1.AnyValue{Value: &otlpv1.AnyValue_StringValue{StringValue: string(substitution.AppendFormat(nil, a.text, v.of))}}
}

func messages(fields []anyField, v *values) *otlpv1.KeyValueList {
	out := &otlpv1.KeyValueList{}
	for i := range fields {
		out.Values = append(out.Values, &otlpv1.KeyValue{Key: fields[i].key, Value: fields[i].value.message(v)})
	}
	return out
}

// collectorCluster returns the name of the cluster that leads to a collector, and adds the cluster to the config once.
// Envoy loads a logger only where it knows the cluster already; clusters are sent before listeners. The collectors of a
// proxy are numbered, as in the reference.
func (w *writer) collectorCluster(at toolkit.Collector) string {
	if w.collectors == nil {
		w.collectors = map[toolkit.Collector]int{}
		quiet := resolver{c: w.c}
		quiet.eachRule(func(rule *policy.Rule, list string) {
			for _, s := range quiet.sinks(rule, list) {
				if s.kind != sinkOTel {
					continue
				}
				c, _ := toolkit.ParseCollector(s.otel.Endpoint) // valid
				if _, known := w.collectors[c]; !known {
					w.collectors[c] = len(w.collectors)
				}
			}
		})
	}
	name := fmt.Sprintf("meshaccesslog:opentelemetry:%d", w.collectors[at])
	if w.c.Host.Claim(draft.TypeCluster, name) {
		cluster := toolkit.HostCluster(name, origin, at, w.proxy.address)
		cluster.HTTP = draft.HTTP2Options
		w.d.Clusters = append(w.d.Clusters, cluster)
	}
	return name
}
